// The custom resource definitions of objects that the chart can create are files of these
// modules. They are downloaded by TestObjects, and nothing is built from them.
module github.com/generic-dp/generic-dp/test/e2e/crds

go 1.26.0

require (
	github.com/openshift/api v0.0.0-20251015095338-264e80a2b6e7
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
