module github.com/modelberth/modelberth/hack/prices

go 1.26.3

require github.com/google/go-cmp v0.7.0
