# An image with what agents usually reach for. A sandbox needs none of it: the
# server is put into any image with a shell when the sandbox is made.
#
#   make image                              # where no registry can be reached, too
#   docker build --build-arg BASE=debian:bookworm-slim -t actiond:dev - <Dockerfile
#
#   make image-browser                      # with Chromium, which doubles its size
#
# BASE is any Debian or Ubuntu; with Chromium, a Debian.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

# sudo is here for scripts that call it. It lets nobody become root: sandboxes
# start with no-new-privileges, so that it could not.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      bash ca-certificates curl git less procps python3 python3-ipykernel python3-pip python3-venv ripgrep sudo \
 && rm -rf /var/lib/apt/lists/*

# The account that commands run as; runtimectl's default has the same name and id.
RUN useradd --create-home --shell /bin/bash --uid 1000 agent \
 && install -d -o agent -g agent /workspace

# BROWSER=chromium installs it. Not a stage of its own: builders without BuildKit
# would build it for every image.
ARG BROWSER=
RUN [ -z "$BROWSER" ] || { apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$BROWSER" fonts-dejavu-core \
 && rm -rf /var/lib/apt/lists/*; }

ENV LANG=C.UTF-8
WORKDIR /workspace
