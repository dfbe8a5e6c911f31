module github.com/modelberth/modelberth/hack/shape

go 1.26.3

require (
	github.com/google/go-cmp v0.7.0
	golang.org/x/tools v0.49.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/mod v0.39.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
)
