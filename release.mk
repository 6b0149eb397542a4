# What few changes need: images, clusters, the release. Makefile includes this file.

BASE     ?= debian:bookworm-slim
IMAGE    ?= actiond:dev
SERVER_IMAGE ?= actiond-server:dev
EXECUTION_IMAGE ?= actiond-execution:dev

# A whole Kubernetes for tests, built from the module in integration/kubernetes/cluster.
KUBERNETES := v1.36.3
CLUSTER    ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/actiond/kubernetes-$(KUBERNETES)
# How many sandboxes 'make scale' measures.
SCALE      ?= 100 1000 10000
# Clients must be able to parse the version.
CLUSTER_LDFLAGS := -s -w \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36

# Pinned as the tools of Makefile are.
GOVULNCHECK := $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4
OASDIFF     := $(GO) run github.com/oasdiff/oasdiff@v1.36.0

.PHONY: programs kubernetes cluster-up helm scale cluster image-server image image-browser image-base image-execution vuln release release-check compat record

# TRIED are packages of Debian with the programs that the first image does not have.
TRIED := aria2 default-jdk-headless gnutls-bin golang-go lftp liblwp-protocol-https-perl libwww-perl lynx nodejs npm openssh-client php-cli ruby socat w3m wget
programs: ## print which programs work in a sandbox with a network policy, with an engine and Debian's packages
	@$(MAKE) -s image IMAGE=actiond-test/batteries:1
	printf 'FROM actiond-test/batteries:1\nRUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(TRIED)\n' | docker build -t actiond-test/programs:1 -
	ACTIOND_PROGRAMS=actiond-test/programs:1 $(GO) test -count=1 -v -tags integration -run TestDockerNetworkPrograms ./integration

kubernetes: cluster ## run the tests that need a Kubernetes cluster, which they start here, as root
	ACTIOND_CLUSTER='$(CLUSTER)' $(GO) test -count=1 -timeout 25m -parallel $(PARALLEL) -tags kubernetes ./integration/kubernetes

cluster-up: build build-kubernetes cluster ## start that cluster on this machine, as root, for a person, until Ctrl-C
	$(GO) test -c -tags kubernetes -o bin/cluster-tests ./integration/kubernetes
	@cd integration/kubernetes && ACTIOND_CLUSTER_UP=1 ACTIOND_CLUSTER='$(CLUSTER)' ../../bin/cluster-tests

helm: ## compare what Helm renders of the chart with 'runtimectl manifests'; HELM=PROGRAM is not built
	HELM='$(HELM)' $(GO) test -vet=off -count=1 -timeout 1h -tags helm -run '^TestChartByHelm$$' ./kubernetes

scale: cluster ## measure SCALE sandboxes on 1,000 fake nodes; 10,000 take most of an hour
	ACTIOND_CLUSTER='$(CLUSTER)' ACTIOND_SCALE='$(SCALE)' $(GO) test -count=1 -timeout 2h -v -tags 'kubernetes scale' -run '^TestScale$$' ./integration/kubernetes

cluster: ## build that cluster as CLUSTER; the first time takes minutes
	cd integration/kubernetes/cluster && $(GO) build -o '$(CLUSTER)' -ldflags '$(CLUSTER_LDFLAGS)' .

image-server: build build-kubernetes ## build the image SERVER_IMAGE (actiond-server:dev) of the gateway, which brings the server into Pods
	printf 'FROM scratch\nCOPY server runtimectl-kubernetes /\nENTRYPOINT ["/server"]\n' >bin/Dockerfile.server
	docker build --file bin/Dockerfile.server --tag '$(SERVER_IMAGE)' bin

# Nothing is sent to the engine but the Dockerfile, which copies nothing. Only
# the default base is made here where no registry can be reached: any other
# stands for something that a Debian of ours is not.
image: ## build the container image IMAGE (actiond:dev) from BASE (debian:bookworm-slim)
	@base='$(BASE)'; \
	if docker image inspect "$$base" >/dev/null 2>&1; then how='it is on this host'; \
	elif docker pull "$$base"; then how='it was pulled'; \
	elif [ "$$base" != debian:bookworm-slim ]; then \
		echo "$$base is not on this host and cannot be pulled: give another BASE" >&2; exit 1; \
	else \
		base=actiond-base:bookworm; how='it was made here by debootstrap, since debian:bookworm-slim cannot be pulled'; \
		$(MAKE) -s image-base BASE=$$base || exit 1; \
	fi; \
	echo "base image: $$base; $$how" && \
	docker build --build-arg BASE="$$base" --build-arg BROWSER='$(BROWSER)' --tag '$(IMAGE)' - <Dockerfile && \
	echo "built $(IMAGE) from $$base; $$how"

image-browser: ## build the image with Chromium, as IMAGE (actiond:browser)
	@$(MAKE) -s image BROWSER=chromium IMAGE='$(if $(filter file,$(origin IMAGE)),actiond:browser,$(IMAGE))'

image-base: ## make BASE of Debian's packages alone, with debootstrap, as root
	@docker image inspect '$(BASE)' >/dev/null 2>&1 && exit; \
	command -v debootstrap >/dev/null || { echo 'debootstrap is needed: apt-get install debootstrap' >&2; exit 1; }; \
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && trap 'exit 1' HUP INT TERM && \
	debootstrap --variant=minbase bookworm "$$dir" && chmod 0755 "$$dir" && \
	tar -C "$$dir" --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' -c . | docker import - '$(BASE)'

# OpenHands starts it with 'docker run' for each conversation: no init, no capabilities, and
# the user 10001, whose memory file system is /workspace.
image-execution: build image ## build the image EXECUTION_IMAGE (actiond-execution:dev), which works as OpenHands' OH_EXECUTION_IMAGE
	printf '%s\n' 'FROM $(IMAGE)' 'COPY server /server' \
		'RUN useradd --create-home --uid 10001 --shell /bin/bash openhands && install -d -m 0700 -o openhands -g openhands /var/lib/actiond && chown openhands: /workspace' \
		'USER 10001' 'EXPOSE 8000' 'ENTRYPOINT ["/server", "init"]' >bin/Dockerfile.execution
	docker build --file bin/Dockerfile.execution --tag '$(EXECUTION_IMAGE)' bin

vuln: ## look for known vulnerabilities in what the programs call
	$(GOVULNCHECK) $(PKG)

release: ## build the artefacts of VERSION (v1.2.3) into dist; with SIGNING_KEY=FILE, a key of SSH, sign them
	@$(GO) run ./cmd/internal/release -version '$(VERSION)' -signing-key '$(SIGNING_KEY)'

# What will be published is compared with the same commit built elsewhere. The modules
# may be the same: go.sum has their checksums.
release-check: ## build VERSION again, in a clone with a build cache of its own, and compare it with dist
	@[ -e dist/SHA256SUMS ] || $(MAKE) --no-print-directory release VERSION='$(VERSION)'
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && trap 'exit 1' HUP INT TERM && \
	git clone --quiet . "$$dir/clone" && GOCACHE="$$dir/cache" $(MAKE) --no-print-directory -C "$$dir/clone" release VERSION='$(VERSION)' SIGNING_KEY= && \
	diff dist/SHA256SUMS "$$dir/clone/dist/SHA256SUMS" && (cd dist && sha256sum --check --quiet SHA256SUMS) && echo 'both are equal'

compat: ## fail where the API documents break clients of BASE, a commit (the last tag)
	@base='$(if $(filter command,$(firstword $(origin BASE))),$(BASE))'; \
	[ -n "$$base" ] || base=$$(git describe --tags --abbrev=0) || { echo 'BASE=COMMIT must name what to compare with: there is no tag' >&2; exit 2; }; \
	for document in api/openapi.yaml api/gateway.yaml; do \
		$(OASDIFF) breaking --fail-on WARN --err-ignore .ci/compat-exceptions --warn-ignore .ci/compat-exceptions "$$base:$$document" "$$document" || exit 1; \
	done

record: build ## type the commands of README.md into a terminal, with a Docker engine, and write docs/terminal.svg
	@PATH='$(CURDIR)/bin':"$$PATH" $(GO) run ./cmd/internal/record >bin/terminal.svg && mv bin/terminal.svg docs/terminal.svg

