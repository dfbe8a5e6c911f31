# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Start with `make demo` or `make test`; `make help` lists the rest. Everything
# is built from pinned sources: the tools once for each version into a cache
# (MODELBERTH_CACHE), the product into bin/. Several checkouts share the tools
# and nothing else, so they can build and run clusters at the same time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The go command uses every core by itself; two builds at once only mix their output.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

export MODELBERTH_CACHE ?= $(HOME)/.cache/modelberth

# Tools: a directory for each module of hack/tools, named by version; see hack/tools/build.sh.
TOOL_DIRS := $(shell hack/tools/build.sh dirs)
tool_dir = $(filter $(MODELBERTH_CACHE)/tools/$(1)-%,$(TOOL_DIRS))
# Scripts and tests find the tools through these; KUBE_BIN is a directory with
# etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
# kube-proxy and kubectl.
TOOL_VARIABLES := KUBE_BIN COREDNS HELM CONTROLLER_GEN GOLANGCI_LINT LOCALCLOUD IMAGE IMAGES
KUBE_BIN := $(call tool_dir,kubernetes)
COREDNS := $(call tool_dir,coredns)/coredns
HELM := $(call tool_dir,helm)/helm
CONTROLLER_GEN := $(call tool_dir,controller-gen)/controller-gen
GOLANGCI_LINT := $(call tool_dir,golangci-lint)/golangci-lint
# What is built from this checkout, outside of it because root builds it, too.
OURS := $(MODELBERTH_CACHE)/checkouts/$(shell pwd -P | sha256sum | cut -c1-8)
LOCALCLOUD := $(OURS)/bin/localcloud
IMAGE := $(OURS)/bin/image
SUMMARY := $(OURS)/bin/testsummary
IMAGES := $(OURS)/images
export $(TOOL_VARIABLES)

# Modules with code of ours, and the directories with unit tests in the root module.
MODULES := . $(patsubst %/go.mod,%,$(wildcard test/localcloud/go.mod hack/image/go.mod hack/prices/go.mod hack/shape/go.mod verifier/go.mod))
UNIT := $(wildcard api cmd hack pkg presets test/chart test/docs test/ends test/script test/vllmsim)

# Static binaries, and one compilation of what the product, its tools, its tests and the linter share.
export CGO_ENABLED := 0
BUILD := go build -buildvcs=false
# The race detector needs a C compiler, and everything compiled once more.
RACE := $(if $(shell command -v gcc),-race)
RACED := $(if $(RACE),CGO_ENABLED=1)
# The detector makes tests several times slower, so only packages with concurrency of their own have it: goroutines or
# locks in their code, or goroutines in their tests.
GOROUTINE := ^\s*go |\.Go\(
CONCURRENT = $(shell grep -rlE --include='*.go' --exclude='*_test.go' '"sync["/]|errgroup|singleflight|$(GOROUTINE)' $(UNIT); \
	grep -rlE --include='*_test.go' '"testing/synctest"|t\.Parallel|RunParallel|$(GOROUTINE)' $(UNIT))
RACING = $(sort $(abspath $(dir $(CONCURRENT))))
CALM = $(filter-out $(RACING),$(shell go list -f '{{.Dir}}' $(UNIT:%=./%/...)))
ROOT := $(filter 0,$(shell id -u))
# Each checkout has a local cloud for the demo, one for the tests and one for benchmarks: `localcloud --name`.
UP_FLAGS := --bin-dir $(KUBE_BIN) --coredns $(COREDNS) --skus presets/skus --pause-image $(IMAGES)/pause.tar
INSTALL_FLAGS := $(UP_FLAGS) --helm $(HELM) $(patsubst %,--image $(IMAGES)/%.tar,controller agent llamacpp vllm)
# When the person at the terminal began to wait.
STARTED := $(shell date +%s)
CRDS := charts/modelberth/files/crds

# A recipe line that takes long is one command, which Bash replaces itself by: only so do signals to make reach it.

# A tier of tests: $(call run_tier,NAME,MODULE,FLAGS AND PACKAGES). RESULTS is the
# file that `make test` collects the tiers in.
# The linter runs go vet.
run_tier = $(SUMMARY) run -tier $(1) -dir $(2) -results "$(RESULTS)" $(4) -- -buildvcs=false -vet=off -count=1 $(3)

define unit_tier
	status=0; $(if $(RACE),,echo 'no C compiler here: the race detector is off';) \
	$(RACED) $(call run_tier,unit,.,-shuffle=on $(RACE) $(RACING)) || status=1; \
	$(call run_tier,unit,.,-shuffle=on $(CALM) ./test/simulation ./test/parity) || status=1; \
	for module in $(filter-out .,$(MODULES)); do \
		$(RACED) $(call run_tier,unit,$$module,-shuffle=on $(RACE) ./...) || status=1; \
	done; exit $$status
endef
# The longest package first, so that the others run beside it.
define integration_tier
	KUBEBUILDER_ASSETS=$(KUBE_BIN) HELM=$(HELM) $(call run_tier,integration,.,-timeout 30m ./test/integration/workspace ./test/integration/...)
endef

##@ Start here

.PHONY: demo
demo: cluster-ready ## Real cluster on this machine, a Workspace, an answer from its model (root)
	@$(LOCALCLOUD) demo --started $(STARTED) $(INSTALL_FLAGS)

.PHONY: demo-down
demo-down: require-root localcloud-bin ## Take the demo's cluster down and leave nothing behind (root)
	@$(LOCALCLOUD) down

.PHONY: test
test: $(if $(ROOT),deps) testsummary ## All tests in one go with a summary; end to end only as root
	@mkdir -p $(OURS) && rm -f $(OURS)/results $(OURS)/passed
	-@$(MAKE) --keep-going all-tiers RESULTS=$(OURS)/results
	@$(SUMMARY) table -expect unit,integration,e2e -results $(OURS)/results
	@test -e $(OURS)/passed || { echo 'a tier ended early: see above' >&2; exit 1; }

.PHONY: all-tiers
all-tiers: test-both $(if $(ROOT),test-localcloud test-e2e,skip-e2e)
	@touch $(OURS)/passed

.PHONY: check
check: check-generated lint shape test-unit ## Everything that a commit must pass: generated code, lint, shape, unit tests

##@ Build

.PHONY: build
build: ## Build the static binaries into bin/
	@echo "building bin/: $(notdir $(wildcard cmd/*)) modelberth-verifier"
	@$(BUILD) -ldflags "-s -w" -o bin/ ./cmd/...
	@cd verifier && $(BUILD) -ldflags "-s -w" -o ../bin/modelberth-verifier .
	@$(if $(ROOT),chown -R --reference=. bin)

.PHONY: kubectl-berth
kubectl-berth: ## Build only the command line into bin/: kubectl berth plan --model …
	@echo "building bin/kubectl-berth"
	@$(BUILD) -ldflags "-s -w" -o bin/ ./cmd/kubectl-berth
	@$(if $(ROOT),chown -R --reference=. bin)

.PHONY: images
images: image-bin ## Container images of this tree, without Docker
	@hack/images.sh

.PHONY: verifier-image
verifier-image: image-bin ## Container image of modelberth-verifier, which is optional
	@hack/images.sh verifier

# What a release is called, where its images will be pulled from, and what else hack/release takes: -key, -download.
VERSION ?= $(shell sed -n 's/^version: //p' charts/modelberth/Chart.yaml)
REGISTRY ?= registry.example/modelberth

.PHONY: release
release: image-bin ## Images, chart, command lines, SBOMs, checksums and an air-gap bundle into dist/; REGISTRY=, VERSION=, RELEASE_FLAGS="-key FILE -download URL"
	@for arch in amd64 arm64; do VERSION=$(VERSION) GOARCH=$$arch hack/images.sh controller agent router; done
	@go run -buildvcs=false ./hack/release -images $(IMAGES) -version $(VERSION) -registry $(REGISTRY) $(RELEASE_FLAGS)
	@$(if $(ROOT),chown -R --reference=. dist)

.PHONY: tools
tools: $(TOOL_DIRS) localcloud-bin image-bin ## Build all tools of the targets here
	@echo "tools are in $(MODELBERTH_CACHE)"

.PHONY: localcloud-bin
localcloud-bin: ## Build the local cloud's program
	@echo "building localcloud"
	@cd test/localcloud && $(BUILD) -o $(LOCALCLOUD) .

.PHONY: image-bin
image-bin: ## Build the program that makes container images
	@echo "building image"
	@cd hack/image && $(BUILD) -o $(IMAGE) .

.PHONY: generate
generate: $(call tool_dir,controller-gen) ## Generate code and CRDs from the API's types, and the references of the CLI and the metrics
	@hack/generate.sh

.PHONY: prices
prices: ## Update the prices in presets/skus from the pinned sources; PRICES_FLAGS=-check only compares
	@cd hack/prices && go run -buildvcs=false . $(PRICES_FLAGS)

.PHONY: pin
pin: ## Pin branches and tags in presets to commits and digests; PIN_FLAGS=-check only lists them
	@go run -buildvcs=false ./hack/pin $(PIN_FLAGS)

##@ Check

.PHONY: check-generated
check-generated: ## Fail if generated files differ from the output of `make generate`
	@sum() { find api $(CRDS) docs/reference -name 'zz_generated*' -o -path '$(CRDS)/*' -type f -o -name cli.md -o -name metrics.md | \
		LC_ALL=C sort | xargs -r sha256sum; }; \
	mkdir -p $(CRDS); before=$$(sum); $(MAKE) generate; \
	stale=$$({ diff <(echo "$$before") <(sum) || true; } | sed -n 's/^[<>] [0-9a-f]*  //p' | sort -u); \
	[ -z "$$stale" ] || { echo "these were stale and are regenerated now, commit them:" $$stale >&2; exit 1; }

.PHONY: lint
lint: $(call tool_dir,golangci-lint) ## Run golangci-lint on every module; LINT_FLAGS=--fix corrects some findings
	@status=0; for module in $(MODULES); do \
		(cd $$module && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml $(LINT_FLAGS) ./...) || status=1; \
	done; \
	go vet -tags fit ./pkg/physics || status=1; exit $$status

.PHONY: shape
shape: ## Check the complexity of every package against hack/shape/shape.yaml; SHAPE_FLAGS=-list prints all figures
	@cd hack/shape && go run -buildvcs=false . -dir ../.. $(SHAPE_FLAGS) ./api/... ./cmd/... ./pkg/... ./hack/...

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in every module; skipped if their database is unreachable
	@hack/vulncheck.sh $(MODULES)

.PHONY: format
format: $(call tool_dir,golangci-lint) ## Format every Go file
	@for module in $(MODULES); do (cd $$module && $(GOLANGCI_LINT) fmt --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: test-unit
test-unit: testsummary $(call tool_dir,helm) ## Unit tests of every module, shuffled; concurrent packages with the race detector
	@$(unit_tier)

# How many stories are told, from which seed on; SEED=N tells one of them in full. DIGEST=FILE has a line for each story:
# two checkouts with the same lines write the same to the cluster.
RUNS ?= 100000
FROM ?= 0

.PHONY: test-simulation
test-simulation: ## RUNS random stories of refusals, losses and crashes against the real Reconciler (half an hour)
	@go test -buildvcs=false -count=1 -timeout 6h -v ./test/simulation -machines 1000 $(if $(SEED),-seed $(SEED),-runs $(RUNS) -from $(FROM)) $(if $(DIGEST),-digest $(abspath $(DIGEST)))

.PHONY: test-integration
test-integration: testsummary $(KUBE_BIN) $(HELM) ## Test the controller against a real API server and etcd
	@$(integration_tier)

# The integration tests wait half of the time, and the unit tests use that time. As jobs, each has a process group for signals.
.PHONY: test-both
test-both: testsummary $(KUBE_BIN) $(HELM)
	@set -m; ($(unit_tier)) & unit=$$!; ($(integration_tier)) & integration=$$!; \
	trap 'kill -- -$$unit -$$integration' INT TERM HUP; status=0; \
	{ wait $$unit || status=1; wait $$integration || status=1; wait; } 2>/dev/null; exit $$status

# Which of the end-to-end tests run: a pattern, as of go test -run.
E2E_RUN ?= .

# The longest time that the end-to-end tests may take.
E2E_TIMEOUT ?= 40m

.PHONY: test-e2e
test-e2e: cluster-ready verifier-image testsummary ## The whole story on the local cloud, which is always taken down (root)
	@$(LOCALCLOUD) run --name e2e $(INSTALL_FLAGS) --image $(IMAGES)/router.tar --image $(IMAGES)/verifier.tar --keep-logs $(MODELBERTH_CACHE) -- \
		$(call run_tier,e2e,.,-timeout $(E2E_TIMEOUT) -parallel 5 -run '$(E2E_RUN)' ./test/e2e/...,-live)

.PHONY: test-localcloud
test-localcloud: cluster-ready testsummary ## The local cloud comes up, crashes, and leaves nothing behind (root)
	@LOCALCLOUD_LIFECYCLE=1 $(call run_tier,e2e,test/localcloud,-timeout 15m -run TestLifecycle .)

.PHONY: skip-e2e
skip-e2e: testsummary
	@$(SUMMARY) skip -tier e2e -results "$(RESULTS)" \
		-why 'needs root for network namespaces, mounts and cgroups; run: sudo env "PATH=$$PATH" make test-e2e'

.PHONY: chaos
chaos: ## Break the controller, the API server, etcd, Karpenter, kubelets and networks at random, on the local cloud (root, 15 minutes)
	@MODELBERTH_CHAOS_ROUNDS=20 MODELBERTH_CHAOS_ALL=1 $(MAKE) test-e2e E2E_RUN=Chaos

# How many requests the soak sends.
REQUESTS ?= 1000000

.PHONY: soak
soak: ## REQUESTS requests to sets that scale between zero and three replicas while processes die (root, 1 hour)
	@MODELBERTH_SOAK_REQUESTS=$(REQUESTS) $(MAKE) test-e2e E2E_RUN=TestSoak E2E_TIMEOUT=4h

# Stories whose figures are printed: a start of each engine, and the loss of each kind of member.
RUNTIME_STORIES := ^TestVLLM$$$$|^TestLlamaCppOverTwoNodes$$$$|^TestVLLMOverNodes$$$$/2_nodes

.PHONY: bench-runtime
bench-runtime: ## Compare the agent's downloads with curl; as root, also measure starts and recoveries on the local cloud (5 minutes)
	@go test -buildvcs=false -run '^$$' -bench Weights -benchtime 1x ./pkg/agent | grep -E '^(Benchmark|ok|FAIL)'
	@$(MAKE) $(if $(ROOT),bench-stories,skip-stories)

.PHONY: bench-stories
bench-stories:
	@mkdir -p $(OURS) && rm -f $(OURS)/figures && echo 'starts and recoveries: the log is $(OURS)/figures.log'
	@E2E_FIGURES=$(OURS)/figures $(MAKE) test-e2e E2E_RUN='$(RUNTIME_STORIES)' >$(OURS)/figures.log 2>&1
	@echo; echo 'On the local cloud, whose machines start in seconds and whose models are tiny: what Modelberth itself adds.'
	@cat $(OURS)/figures

.PHONY: skip-stories
skip-stories:
	@echo 'starts and recoveries need root: sudo env "PATH=$$PATH" make bench-runtime'

FUZZTIME ?= 1m

# The figures of the tests once more at the end, each beside what it may be.
FIGURES := awk '{ print } sub(/.*figure: /, "") { all[++n] = $$0 } END { print "\nFigures"; for (i = 1; i <= n; i++) print "  " all[i] }'

.PHONY: bench-planner
bench-planner: ## Compare plans with published measurements, and measure the planner's time
	@{ go test -buildvcs=false -count=1 -v ./pkg/catalog ./pkg/physics ./pkg/planner \
		-run 'ParameterCounts|HubsTotals|Calibration|FailedStarts|TimesNotCompared|RowsThatQueue|DecisionRegret|ReleaseExplains|NodesAgainstKAITO|PresetsOnOneGPU|PlansAllocateLittle|PlansOfCatalogueAreSound|MeasuredCoverage|MeasuredRuns|MeasurementsOfPresets|LawsOnTheirRows|PipelinesOnLinkedGPUs|LlamaCppByClass' \
		| grep -vE '^(=== |PASS|    --- )'; \
	go test -buildvcs=false -count=1 -tags fit -v ./pkg/physics -run LeaveOneLabOut | grep 'figure: '; \
	go test -buildvcs=false -run '^$$' -bench . -benchmem ./pkg/physics ./pkg/planner | grep -E '^(Benchmark|ok|FAIL)|figure: '; } | $(FIGURES)

.PHONY: bench-controller
bench-controller: ## Cost of refusals, existing nodes and pods in large clusters (1 minute)
	@{ go test -buildvcs=false -run '^$$' -bench 'Memory|Refusal|PlanOnNodes' \
		./pkg/capacity/cooldown ./pkg/controllers/workspace ./pkg/planning | grep -vE '^(goos|goarch|pkg|cpu|PASS)'; \
	go test -buildvcs=false -count=1 -v -run TestPodTakesFewBytes ./pkg/capacity/nodeuse | grep -vE '^(=== |PASS)'; } | $(FIGURES)

# How many Workspaces at once; BENCH_FLAGS=--check fails when a budget is missed.
N ?= 200
BENCH_CLOUD := --name bench --keep-logs $(MODELBERTH_CACHE)

.PHONY: bench-capacity
bench-capacity: cluster-ready ## Measure N Workspaces at once on simulated nodes, compared with the floor (root)
	@$(LOCALCLOUD) bench-capacity $(BENCH_CLOUD) $(INSTALL_FLAGS) --workspaces $(N) $(BENCH_FLAGS)

# Nodes of nobody's models beside the Workspaces' own.
NODES ?= 1000

.PHONY: bench-scale
bench-scale: N := 1000
bench-scale: cluster-ready ## Measure N Workspaces in a cluster with NODES other nodes: at once, at rest, after a restart and the leader's end (root)
	@$(LOCALCLOUD) bench-scale $(BENCH_CLOUD) $(INSTALL_FLAGS) --workspaces $(N) --other-nodes $(NODES) $(BENCH_FLAGS)

SETS ?= 40
.PHONY: bench-sets
bench-sets: cluster-ready ## Measure SETS InferenceSets of 5 replicas that are created, scaled and deleted at once on simulated nodes (root)
	@$(LOCALCLOUD) bench-sets $(BENCH_CLOUD) $(INSTALL_FLAGS) --sets $(SETS) $(BENCH_FLAGS)

.PHONY: bench-neighbour
bench-neighbour: cluster-ready ## Measure how a request for a GPU machine delays other pods that wait for nodes (root, 14 minutes)
	@$(LOCALCLOUD) bench-neighbour $(BENCH_CLOUD) $(UP_FLAGS) $(BENCH_FLAGS)

.PHONY: bench-router
bench-router: ## Compare the router's latency with nginx and HAProxy, if they are installed (2 minutes)
	@mkdir -p $(OURS) && go build -buildvcs=false -o $(OURS)/routerbench ./test/routerbench && $(OURS)/routerbench $(BENCH_FLAGS)

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (1m)
	@{ grep -rlE --include='*_test.go' '^func Fuzz' $(wildcard api cmd hack pkg presets test verifier) || true; } | xargs -r -n1 dirname | sort -u | \
	while read -r package; do \
		for name in $$(grep -hoE '^func Fuzz\w+' $$package/*_test.go | cut -d' ' -f2); do \
			(cd $$package && go test -buildvcs=false -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) .); \
		done; \
	done

##@ House-keeping

.PHONY: deps
deps: ## Install the Debian packages that the local cloud needs (root)
	@hack/install-deps.sh

.PHONY: env
env: ## Print the tools' paths as shell variables: eval "$$(make env)"
	@$(foreach name,$(TOOL_VARIABLES) MODELBERTH_CACHE,echo 'export $(name)=$($(name))';)

.PHONY: tools-align
tools-align: ## Give the tools' modules the root module's versions of shared dependencies
	@hack/tools/align.sh

.PHONY: clean
clean: ## Remove this checkout's build output
	@rm -rf bin "$(OURS)"

.PHONY: clean-cache
clean-cache: ## Remove all built tools and images, of all versions
	@rm -rf "$(MODELBERTH_CACHE)"

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } \
		{ gsub(/\$$\$$/, "$$") } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Everything that the local cloud and the chart on it are made of.
.PHONY: cluster-ready
cluster-ready: require-root deps $(KUBE_BIN) $(call tool_dir,coredns) $(call tool_dir,helm) localcloud-bin images

.PHONY: require-root
require-root:
	@$(if $(ROOT),,echo 'make $(MAKECMDGOALS) needs root for network namespaces, mounts and cgroups; run: sudo env "PATH=$$PATH" make $(MAKECMDGOALS)' >&2; exit 1)

.PHONY: testsummary
testsummary:
	@$(BUILD) -o $(SUMMARY) ./hack/testsummary

# A tool's directory is complete when it exists, and its name changes with its version.
$(TOOL_DIRS):
	@name=$(@F); hack/tools/build.sh build "$${name%-*}"
