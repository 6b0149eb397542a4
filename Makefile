# Every program is built by go build alone; this file only names things.

.DEFAULT_GOAL := check

GO       ?= go
PKG      ?= ./...
FUZZTIME ?= 30s
BENCHTIME ?= 100ms
BENCH     ?= .
BASE     ?= debian:bookworm-slim
IMAGE    ?= actiond:dev
SERVER_IMAGE ?= actiond-server:dev
EXECUTION_IMAGE ?= actiond-execution:dev

# Tests are built as the programs are, without cgo and without paths: what they
# share is compiled once. Most tests wait for programs and for limits, so more of
# them, and of their packages, run at a time than there are processors.
PARALLEL ?= $(shell expr 3 '*' $$(nproc))
PACKAGES ?= $(shell expr 2 '*' $$(nproc))

# A whole Kubernetes for tests, built from the module in integration/kubernetes/cluster.
KUBERNETES := v1.36.3
CLUSTER    ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/actiond/kubernetes-$(KUBERNETES)
# The Pythons that 'make python' tests with, of those that are there.
PYTHONS ?= python3 python3.9 python3.11 python3.13
MYPY    ?= mypy
# How many sandboxes 'make scale' measures.
SCALE      ?= 100 1000 10000
# Clients must be able to parse the version.
CLUSTER_LDFLAGS := -s -w \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36

# Tools are pinned here and not in go.mod: everyone has the same ones, and the
# programs do not carry their dependencies.
GOLANGCI    := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BENCHSTAT   := $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
GOVULNCHECK := $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4
OASDIFF     := CGO_ENABLED=0 $(GO) run -trimpath github.com/oasdiff/oasdiff@v1.36.0

.PHONY: help check build build-kubernetes test race lint fmt tidy update fuzz fuzz-list lines bench compare demo integration programs python kubernetes helm scale cluster cluster-up image image-server image-execution image-browser image-base vuln release release-check compat record clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

check: tidy lint race build build-kubernetes ## everything a change must pass (the default)

BUILD := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/
# What every user needs. The modules of Kubernetes are half of all that there is to
# compile, so the program with them is built apart.
PROGRAMS := ./cmd/server ./cmd/runtimectl

build: ## build bin/server and bin/runtimectl
	$(BUILD) $(PROGRAMS)

build-kubernetes: ## build bin/runtimectl-kubernetes, which 'runtimectl --on kubernetes' needs
	$(BUILD) ./cmd/runtimectl-kubernetes

# Other users read the files of tests, whatever umask the caller has. Vet reads all
# that is imported, a seventh of the processor's time where nothing is compiled yet;
# make check vets, by the linter.
test: ## run the tests whose packages changed since they passed
	umask 022; CGO_ENABLED=0 $(GO) test -vet=off -trimpath -p $(PACKAGES) -parallel $(PARALLEL) $(PKG)

race: ## run the tests with the race detector, in random order
	CGO_ENABLED=1 $(GO) test -vet=off -race -shuffle=on -p $(PACKAGES) -parallel $(PARALLEL) $(PKG)

lint: ## look for bugs, breaches of the floors, and form
	@echo 'running the linter; the first time it is built, which takes minutes'
	@$(GOLANGCI) run $(PKG)

fmt: ## format the code
	$(GOLANGCI) fmt

tidy: ## fail if go.mod or go.sum is not tidy
	$(GO) mod tidy -diff

update: ## rewrite the golden files; read the diff afterwards
	UPDATE=1 CGO_ENABLED=0 $(GO) test -trimpath $(PKG)

fuzz: ## run every fuzz target for FUZZTIME (30s)
	@$(MAKE) -s fuzz-list | while read -r package target; do \
		echo "$$package $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
	done

fuzz-list: ## print every fuzz target with its package
	@find . -name '*_test.go' -not -path '*/testdata/*' -exec grep -HoE '^func Fuzz[A-Za-z0-9_]*' {} + \
		| sed -E 's|/[^/]*_test\.go:func | |' | sort

lines: ## count the lines of Go in each package, without tests
	@git ls-files -z -- '*.go' ':!*_test.go' | xargs -0 awk '{ d = FILENAME; sub("/?[^/]*$$", "", d); n[d]++ } \
		END { for (d in n) { print n[d], d; all += n[d] }; print all, "in all" }' | sort -rn

bench: ## run the benchmarks for BENCHTIME (100ms) each, those of docs/reference/performance.md among them
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKG)
	@docker info >/dev/null 2>&1 || { echo 'left out: the figures of sandboxes, which need a Docker engine'; exit; }; \
	$(GO) test -tags integration -run '^$$' -bench '^BenchmarkDocker(Create|Claim)$$' -benchtime 20x ./integration && \
	$(GO) test -tags integration -run '^$$' -bench '^BenchmarkDockerTrue$$' -benchtime 2000x ./integration && \
	$(GO) test -tags integration -run '^$$' -bench '^BenchmarkDocker(Idle|Churn)$$' -benchtime 1x ./integration

compare: build build-kubernetes ## measure the programs in the directory BEFORE and those in bin in turn, 6 times each
	@test -x '$(BEFORE)/server' || { echo "BEFORE=DIR must name the directory of another version's programs"; exit 2; }
	@rm -f bin/before.txt bin/after.txt
	@for round in 1 2 3 4 5 6; do for version in before after; do \
		echo "round $$round of 6: $$version"; \
		if [ $$version = before ]; then dir='$(abspath $(BEFORE))'; else dir='$(abspath bin)'; fi; \
		ACTIOND_PROGRAMS="$$dir" $(GO) test -run '^$$' -bench '$(BENCH)' -timeout 1h ./integration/benchmarks >>bin/$$version.txt || { tail bin/$$version.txt; exit 1; }; \
	done; done
	@echo "load: $$(cat /proc/loadavg)"; $(BENCHSTAT) bin/before.txt bin/after.txt

# count prints one line in the place of the names of packages and modules. It is no awk
# program: that of Debian waits until it has read 4 KiB.
define count
all=0 modules=0 packages=0 shown=
show() { shown=$$1; [ ! -t 1 ] || printf '\r%-40s' "$$shown"; }
end() { [ -z "$$shown" ] || if [ -t 1 ]; then echo; else echo "$$shown"; fi; shown=; }
while read -r line; do
	case $$line in
	'stale '*) all=$$((all + 1)) ;;
	'go: downloading '*) modules=$$((modules + 1)); show "downloading modules, $$modules" ;;
	'status '*) end; exit "$${line#* }" ;;
	*[!a-zA-Z0-9./_-]*) end; echo "$$line" ;;
	*) packages=$$((packages + 1)); show "compiling, $$packages of $$all" ;;
	esac
done
endef
export count

demo: ## build, make a sandbox, and play a session in it
	@echo 'building both programs, which takes two to five minutes the first time'
	@{ CGO_ENABLED=0 $(GO) list -trimpath -deps -f '{{if .Stale}}stale {{.ImportPath}}{{end}}' $(PROGRAMS) && $(BUILD) -v $(PROGRAMS); echo "status $$?"; } 2>&1 | \
	sh -c "$$count"
	bin/runtimectl demo

# The tests of a module mostly wait, so all modules run at a time.
python: build ## run the tests of clients/python with each of PYTHONS that is there, and mypy where it is
	@cd clients/python && export PYTHONPATH=src ACTIOND_BIN='$(CURDIR)/bin' && tested=; \
	for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print(sys.executable, *sys.version_info[:3])' 2>/dev/null) || { echo "$$python: not found, left out"; continue; }; \
		case $$tested in *"$$version;"*) continue ;; esac; tested="$$tested$$version;"; \
		echo "$$python: $$version"; \
		ls tests/test_*.py | xargs -P 4 -I NAME sh -c \
			'out=$$('"$$python"' -m unittest NAME 2>&1) || { echo "$$out"; exit 1; }; echo "NAME: $$(echo "$$out" | tail -n 3 | tr "\n" " ")"' || exit 1; \
	done; \
	[ -n "$$tested" ] || { echo 'no Python was found' >&2; exit 1; }; \
	if $(MYPY) --version 2>/dev/null; then $(MYPY) src tools examples; else echo 'mypy: not found, left out'; fi

integration: ## run the tests that need a Docker engine
	CGO_ENABLED=0 $(GO) test -trimpath -count=1 -tags integration ./integration

# TRIED are packages of Debian with the programs that the first image does not have.
TRIED := aria2 default-jdk-headless gnutls-bin golang-go lftp liblwp-protocol-https-perl libwww-perl lynx nodejs npm openssh-client php-cli ruby socat w3m wget
programs: ## print which programs work in a sandbox with a network policy, with an engine and Debian's packages
	@$(MAKE) -s image IMAGE=actiond-test/batteries:1
	printf 'FROM actiond-test/batteries:1\nRUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(TRIED)\n' | docker build -t actiond-test/programs:1 -
	ACTIOND_PROGRAMS=actiond-test/programs:1 CGO_ENABLED=0 $(GO) test -trimpath -count=1 -v -tags integration -run TestDockerNetworkPrograms ./integration

kubernetes: cluster ## run the tests that need a Kubernetes cluster, which they start here, as root
	ACTIOND_CLUSTER='$(CLUSTER)' CGO_ENABLED=0 $(GO) test -trimpath -count=1 -timeout 25m -parallel $(PARALLEL) -tags kubernetes ./integration/kubernetes

cluster-up: build build-kubernetes cluster ## start that cluster on this machine, as root, for a person, until Ctrl-C
	CGO_ENABLED=0 $(GO) test -trimpath -c -tags kubernetes -o bin/cluster-tests ./integration/kubernetes
	@cd integration/kubernetes && ACTIOND_CLUSTER_UP=1 ACTIOND_CLUSTER='$(CLUSTER)' ../../bin/cluster-tests

helm: ## compare what Helm renders of the chart with 'runtimectl manifests'; HELM=PROGRAM is not built
	HELM='$(HELM)' CGO_ENABLED=0 $(GO) test -vet=off -trimpath -count=1 -timeout 1h -tags helm -run '^TestChartByHelm$$' ./kubernetes

scale: cluster ## measure SCALE sandboxes on 1,000 fake nodes; 10,000 take most of an hour
	ACTIOND_CLUSTER='$(CLUSTER)' ACTIOND_SCALE='$(SCALE)' CGO_ENABLED=0 $(GO) test -trimpath -count=1 -timeout 2h -v -tags 'kubernetes scale' -run '^TestScale$$' ./integration/kubernetes

cluster: ## build that cluster as CLUSTER; the first time takes minutes
	cd integration/kubernetes/cluster && CGO_ENABLED=0 $(GO) build -trimpath -o '$(CLUSTER)' -ldflags '$(CLUSTER_LDFLAGS)' .

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
	@CGO_ENABLED=0 $(GO) run -trimpath ./cmd/internal/release -version '$(VERSION)' -signing-key '$(SIGNING_KEY)'

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
	@PATH='$(CURDIR)/bin':"$$PATH" CGO_ENABLED=0 $(GO) run -trimpath ./cmd/internal/record >bin/terminal.svg && mv bin/terminal.svg docs/terminal.svg

clean: ## remove what was built
	rm -rf bin dist
