// Runtimectl-kubernetes is runtimectl with the driver of Kubernetes, whose modules are
// most of its size. 'runtimectl --on kubernetes' replaces itself by it.
package main

import (
	"os"

	"github.com/actiond/actiond/cmd/internal/cli"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	_ "github.com/actiond/actiond/internal/quietlog" // libraries may quote a sandbox
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// release is set by packagers: -ldflags "-X main.release=v1.2.3".
var release string

func main() { os.Exit(cli.Main(release, open)) }

func open(c platform.Cluster) (sandbox.Driver, error) {
	return kubernetes.Open(kubernetes.Config{
		Cluster: c.Name, ServerImage: c.ServerImage, ServerVolume: c.ServerVolume, Agent: agent.Agent{}, Progress: c.Progress, Logger: c.Logger, ReadyTimeout: c.ReadyTimeout,
	})
}
