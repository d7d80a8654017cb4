# Targets for developers and CI; `make help` lists them.

GO      ?= go
BIN     := bin/generic-dp
PLUGIN  := bin/kubectl-generic_dp
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# grpcnotrace drops golang.org/x/net/trace and its html/template, which keeps the linker
# from dropping unused methods. nethttpomithttp2 drops net/http's HTTP/2, 0.3 MB: gRPC has
# its own implementation, and the status page uses HTTP/1.1.
TAGS    := grpcnotrace,nethttpomithttp2
# Nearly all of a small binary is resident on every node. Without inlining it is 1.2 MB
# smaller; inlining only the hot paths of Allocate and of startup costs a tenth of that.
# Functions aligned to 4 bytes instead of 32 save 0.3 MB.
INLINED := runtime internal/... $(addprefix google.golang.org/,grpc grpc/internal/transport grpc/mem protobuf/proto protobuf/internal/impl protobuf/encoding/protowire)
GCFLAGS := -gcflags=all=-l $(INLINED:%=-gcflags=%=)
LDFLAGS := -s -w -buildid= -funcalign=4 -X main.version=$(VERSION)
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

FUZZ ?= 10000x

.PHONY: help build plugin run test race browser adversary model soak fuzz lint vuln bench e2e-deps e2e e2e-vm e2e-cluster scale image packages release publish manifests release-test pictures dockerfile clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the static binaries, bin/generic-dp and bin/generic-dp-evict
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) $(GCFLAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/generic-dp
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) $(GCFLAGS) -ldflags '$(LDFLAGS)' -o $(BIN)-evict ./cmd/generic-dp-evict

plugin: ## the plugin of kubectl, bin/kubectl-generic_dp
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(PLUGIN) ./cmd/kubectl-generic_dp

run: ## try the quickstart configuration on this host, without a kubelet
	@$(MAKE) --silent build
	$(BIN) try --config examples/configs/quickstart.toml

# On a disk, many small files take most of the time: tests use /dev/shm if it has 4 GB
# (containers usually get 64 MiB). The directory must have the same name each time, or go test never
# uses a cached result. -p is twice the number of CPUs, because some packages mostly wait. make lint
# runs more vet checks than go test. Scripts and pages run the built program, hundreds of times.
TEST = shm=$$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1); \
	if [ "$${shm:-0}" -gt 4000000 ]; then export TMPDIR=/dev/shm; fi; \
	GENERIC_DP_SCRIPTS_BIN=$(CURDIR)/$(BIN) $(GO) test -timeout 15m -vet=off -p $$((2 * $$(nproc))) -tags $(TAGS)

# Packages with goroutines.
CONCURRENT = . ./internal/agent/... ./internal/kubelet/... ./internal/host/health ./internal/holds ./internal/host/inventory ./internal/status ./internal/sys/... ./internal/tools/plugin ./cmd/generic-dp-evict

test: build plugin ## unit tests; fuzz targets with their known inputs
	@$(TEST) ./...

# By default, a process with the race detector sleeps for a second on exit.
race: build ## the tests of packages with goroutines, with the race detector, which needs a C compiler
	@export GORACE=atexit_sleep_ms=20; $(TEST) -race $(CONCURRENT)

browser: ## the status page in Chromium, on a desktop and on a phone; needs Debian's package chromium
	$(GO) test -count=1 -tags $(TAGS),browser -run TestPageInBrowser ./internal/status

adversary: build ## attacks on the built program, within the memory limit of the DaemonSet; needs root
	GENERIC_DP_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 20m -tags $(TAGS),adversary ./test/adversary

fuzz: ## run every fuzz target with FUZZ new inputs; a failure may be older than your change
	hack/fuzz.sh $(FUZZ)

lint: ## gofmt, go vet, staticcheck, actionlint, file length and size
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "not gofmt'd: $$bad"; exit 1; fi
	$(GO) vet -tags $(TAGS) ./...
	GOOS=darwin $(GO) vet -tags $(TAGS) ./cmd/kubectl-generic_dp
	GOOS=windows $(GO) vet -tags $(TAGS) ./cmd/kubectl-generic_dp
	$(GO) vet -tags $(TAGS),adversary,browser ./test/adversary ./internal/status
	$(GO) vet -tags $(TAGS),cluster ./internal/kubelet/dra
	$(GO) vet -tags scale ./test/scale
	$(GO) run $(STATICCHECK) -tags $(TAGS),adversary ./...
	$(GO) run $(ACTIONLINT) -shellcheck=
	cd hack/release && $(GO) vet ./...
	cd test/e2e && CGO_ENABLED=0 $(GO) vet ./... && CGO_ENABLED=0 $(GO) vet -tags cluster ./cluster
	cd test/e2e/vm && CGO_ENABLED=0 $(GO) vet ./...
	@long=$$(git ls-files '*.go' | xargs wc -l | awk '$$2 != "total" && $$1 > 600 { print $$2 }'); if [ -n "$$long" ]; then echo "over 600 lines: $$long"; exit 1; fi
	@large=$$(git ls-files -z | xargs -0 wc -c | awk '$$2 != "total" && $$1 > 1048576 { print $$2 }'; git grep -alP '^\x7fELF'); if [ -n "$$large" ]; then echo "over 1 MiB, or a program: $$large"; exit 1; fi

vuln: ## known vulnerabilities that the programs and the release can reach; needs the network
	$(GO) run $(GOVULNCHECK) -tags $(TAGS) ./...
	cd hack/release && $(GO) run $(GOVULNCHECK) ./...

# /dev/shm is a tmpfs, like /run: on a disk, a file that replaces another one is written at once.
bench: build plugin ## benchmarks: scan, matching, Allocate, registration; then the whole process
	TMPDIR=/dev/shm GENERIC_DP_BIN=$(CURDIR)/$(BIN) $(GO) test -run '^$$' -tags $(TAGS) -bench . -benchmem ./...

# The test mounts file systems and makes them full or read-only. If a mount namespace is
# permitted, it unmounts them when the test ends.
MODEL = run=; if unshare -m true 2>/dev/null; then run="unshare -m"; fi; \
	GENERIC_DP_BIN=$(CURDIR)/$(BIN) $$run $(GO) test -count=1 -tags $(TAGS) -timeout 0 ./test/model -v

model: build ## a minute of random events, compared with a model; SEED repeats a run
	@$(TEST) -count=1 -run TestRandomEvents ./internal/agent -long -seed $(or $(SEED),0)
	$(MODEL) -timeout 20m -duration 1m -seed $(or $(SEED),0)

soak: build ## make model for DURATION (4h), with waits of minutes, so that devices leave the lists
	$(MODEL) -duration $(or $(DURATION),4h) -seed $(or $(SEED),0) -nodes 16 -waits

e2e-deps: ## install or build Debian packages, kubelet, containerd and runc for the end-to-end tests
	test/e2e/deps.sh

# Run more tests in parallel than a small machine has cores, because they mostly wait.
e2e: build e2e-deps ## end-to-end tests on a real kubelet and container runtime
	cd test/e2e && CGO_ENABLED=0 GENERIC_DP_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -vet=off -timeout 30m -parallel 4 ./...

e2e-vm: build ## end-to-end tests on emulated hardware, with figures: USB, PCI and NUMA in QEMU
	test/e2e/vm/deps.sh
	cd test/e2e/vm && GENERIC_DP_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -vet=off -timeout 30m -v ./...

# The version of the image that the chart installs.
CHART_VERSION = $(shell sed -n 's/^appVersion: //p' deploy/helm/generic-dp/Chart.yaml)

# NEXT=1 also runs the tests that have a variant for the next minor version of Kubernetes.
e2e-cluster: build plugin ## deploy/ and the chart on a real cluster; NEXT=1 adds the next version of Kubernetes
	test/e2e/deps.sh --cluster $(if $(NEXT),--next)
	VERSION=$(CHART_VERSION) OUT=dist/e2e hack/release.sh all
	$(GO) tool -modfile=hack/release/go.mod crane version >/dev/null # the tests publish where no module can be downloaded
	cd test/e2e && CGO_ENABLED=0 GENERIC_DP_BIN=$(CURDIR)/$(BIN) GENERIC_DP_E2E_NEXT=$(NEXT) $(GO) test -count=1 -vet=off -timeout 40m -parallel 4 -tags cluster ./cluster
	$(if $(NEXT),cd test/e2e && CGO_ENABLED=0 GENERIC_DP_BIN=$(CURDIR)/$(BIN) GENERIC_DP_E2E_NEXT=1 $(GO) test -count=1 -vet=off -run TestRollout/v1.37 ./node)

scale: ## what NODES (500) nodes cost an API server: writes, CPU, memory, time until all is published
	test/e2e/deps.sh --cluster
	$(GO) run -tags scale ./test/scale -nodes $(or $(NODES),500)

# OUT is the output directory of the release artifacts.
OUT     ?= $(CURDIR)/dist
RELEASE  = VERSION=$(VERSION) OUT=$(OUT) hack/release.sh

image: ## an OCI image for amd64, arm64 and arm/v7, in dist, with the bills of materials of its programs
	$(RELEASE) image

packages: ## .deb and .rpm packages, in dist
	$(RELEASE) packages

release: ## all artifacts of a release, with checksums, in dist; VERSION must be the chart's
	$(RELEASE) all

publish: ## push the image and the chart of "make release" to REGISTRY, and print their digests; needs helm
	@VERSION=$(VERSION) OUT=$(OUT) hack/publish.sh $(REGISTRY)

manifests: ## render the chart: manifests in deploy, distributions in dist
	$(GO) run -C hack/release . -out $(OUT) manifests

release-test: ## tests of chart, manifests, image and packages; GENERIC_DP_INSTALL=1 installs and removes the .deb
	cd hack/release && $(GO) test -count=1 ./...

pictures: ## the pictures in docs, from an emulated machine and a browser; needs root
	$(MAKE) build VERSION=$(CHART_VERSION)
	hack/pictures.sh

dockerfile: ## build the Dockerfile without a registry and compare it with make image; needs root
	VERSION=$(VERSION) hack/dockerfile.sh

clean: ## remove bin and dist
	rm -rf bin dist
