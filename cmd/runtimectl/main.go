// Runtimectl is the controller's side of Actiond: it makes and drives the
// sandboxes in which agents act.
package main

import (
	"os"

	"github.com/actiond/actiond/cmd/internal/cli"
	_ "github.com/actiond/actiond/internal/quietlog" // libraries may quote a sandbox
)

// release is set by packagers: -ldflags "-X main.release=v1.2.3".
var release string

func main() { os.Exit(cli.Main(release, nil)) }
