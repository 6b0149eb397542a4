//go:build integration

package integration

import (
	"testing"

	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/drivertest"
)

func TestDockerDriver(t *testing.T) {
	t.Parallel()
	drivertest.Suite{
		Open: func(t *testing.T) sandbox.Driver { t.Helper(); return testHost(t) },
		Spec: sandbox.Spec{Image: image(t, busyboxImage)},
	}.Run(t)
}
