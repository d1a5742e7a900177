// The programs of `make deploy-check-api`, built from the Go module proxy: an API server and its etcd.
// go.mod replaces each part of Kubernetes that its own repository has in a folder.

//go:build tools

package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
