// The server of Google's storage protocol of `make gcs-server`, built from the Go module proxy.

//go:build tools

package tools

import _ "github.com/fsouza/fake-gcs-server"
