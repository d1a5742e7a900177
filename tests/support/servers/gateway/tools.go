// The second S3 server of `make s3-gateway`, built from the Go module proxy.

//go:build tools

package tools

import _ "github.com/versity/versitygw/cmd/versitygw"
