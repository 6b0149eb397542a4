# Every program is built by go build alone; this file only names things. Targets for
# images, clusters and the release are in release.mk.

.DEFAULT_GOAL := check

# All targets build without cgo and without paths: the programs, the tests, the linter
# and the tools share what is compiled. Only the race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

GO       ?= go
PKG      ?= ./...
FUZZTIME ?= 30s
BENCHTIME ?= 100ms
BENCH     ?= .

# Most tests wait for programs and for limits, so more of them, and of
# their packages, run at a time than there are processors.
PARALLEL ?= $(shell expr 3 '*' $$(nproc))
PACKAGES ?= $(shell expr 2 '*' $$(nproc))

# The Pythons that 'make python' tests with, of those that are there.
PYTHONS ?= python3 python3.9 python3.11 python3.13
MYPY    ?= mypy

# Tools are pinned here and not in go.mod: everyone has the same ones, and the
# programs do not carry their dependencies.
GOLANGCI    := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BENCHSTAT   := $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

.PHONY: help check build build-kubernetes test race lint fmt tidy update fuzz fuzz-list lines bench compare demo integration python clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: tidy lint race build build-kubernetes ## everything a change must pass (the default)

BUILD := $(GO) build -ldflags '-s -w' -o bin/
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
	umask 022; $(GO) test -vet=off -p $(PACKAGES) -parallel $(PARALLEL) $(PKG)

race: ## the same with the race detector
	umask 022; CGO_ENABLED=1 $(GO) test -vet=off -race -p $(PACKAGES) -parallel $(PARALLEL) $(PKG)

lint: ## look for bugs, breaches of the floors, and form
	@echo 'running the linter; the first time it is built, which takes minutes'
	@$(GOLANGCI) run $(PKG)

fmt: ## format the code
	$(GOLANGCI) fmt

tidy: ## fail if go.mod or go.sum is not tidy
	$(GO) mod tidy -diff

update: ## rewrite the golden files; read the diff afterwards
	UPDATE=1 $(GO) test $(PKG)

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
	$(GO) test -tags integration -run '^$$' -bench '^BenchmarkDocker(Create|Claim|Execution)$$' -benchtime 20x ./integration && \
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
	@{ $(GO) list -deps -f '{{if .Stale}}stale {{.ImportPath}}{{end}}' $(PROGRAMS) && $(BUILD) -v $(PROGRAMS); echo "status $$?"; } 2>&1 | \
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
	$(GO) test -count=1 -tags integration ./integration

clean: ## remove what was built
	rm -rf bin dist

include release.mk
