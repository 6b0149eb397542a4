package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) create() *cobra.Command {
	c := &cobra.Command{
		Use:   "create [flags] IMAGE",
		Short: "Make a sandbox and print its id",
		Long: `Create makes a sandbox from an image, and prints its id as soon as a command ran
in its shell. Any Linux image with a shell will do: the server is put into it.
The image is pulled if it is not on the host.

By default commands run as user agent, who is not root, with 2 GiB of memory, 2
processors and 512 processes, without privileges and with the network. 'inspect'
says what protection flags take away or add. Directories that would give the
sandbox power over the host are not mounted.

A flag that the platform cannot honour is an error; '--on kubernetes --help' shows
those for Pods.

With --key it makes at most one sandbox for that key. Given again with the same
flags, it prints the id of the same sandbox, and starts or resumes it if need be.`,
		Example: `  runtimectl create debian:bookworm
  runtimectl create --name build --memory 4g --ttl 2h -v .:/workspace debian
  runtimectl create --on local --name here`,
		Args:              command.ArgRange(0, 1),
		ValidArgsFunction: p.CompleteImage,
	}
	var pool string
	flags := platform.AddSpec(c)
	p.AddPool(c, &pool)
	format := output.AddFormat(c, "table", "json", "yaml")
	p.AddServer(c)
	p.AddCreation(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		image, _, err := p.OneImage(args)
		if err != nil {
			return command.Usage(cmd, err)
		}
		spec, err := flags.Spec(&p.Platform, image)
		if err != nil {
			return command.Usage(cmd, err)
		}
		return p.Make(cmd.Context(), spec, pool, func(_ sandbox.Driver, s *sandbox.Sandbox) error {
			if format.Value != "table" {
				return p.Print(format, sandboxList{describe(s)})
			}
			_, err := fmt.Fprintln(p.Stdout, s.ID)
			return err
		})
	}
	return c
}
