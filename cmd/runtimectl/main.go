// Runtimectl is the controller's side of Actiond: it makes and drives the
// sandboxes in which agents act.
package main

import (
	"os"

	"github.com/actiond/actiond/cmd/internal/cli"
)

func main() { os.Exit(cli.Main()) }
