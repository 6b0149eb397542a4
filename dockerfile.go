// Package actiond has the Dockerfile of the image that 'runtimectl image' builds. The packages below it
// are the product.
package actiond

import _ "embed"

// Dockerfile is the Dockerfile of this directory.
//
//go:embed Dockerfile
var Dockerfile string
