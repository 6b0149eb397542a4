package main

import (
	"fmt"

	"github.com/spf13/cobra"

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

With --key it makes at most one sandbox for that key. Given again with the same
flags, it prints the id of the same sandbox, and starts or resumes it if need be.`,
		Example: `  runtimectl create debian:bookworm
  runtimectl create --name build --memory 4g --ttl 2h -v .:/workspace debian
  runtimectl create --local --name here`,
		Args:              takes(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	var pool string
	flags := addSpec(c)
	p.addPool(c, &pool)
	p.addPlace(c)
	p.addServer(c)
	p.addUserIDs(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		image, _, err := p.oneImage(args)
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		spec, err := flags.spec(p, image)
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return p.make(cmd.Context(), spec, pool, func(_ sandbox.Driver, s *sandbox.Sandbox) error {
			_, err := fmt.Fprintln(p.stdout, s.ID)
			return err
		})
	}
	return c
}
