// The linter of `make deploy-lint`, built from the Go module proxy.

//go:build tools

package tools

import _ "github.com/zegl/kube-score/cmd/kube-score"
