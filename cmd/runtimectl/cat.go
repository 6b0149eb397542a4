package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/sandbox"
)

func (p *program) cat() *cobra.Command {
	c := &cobra.Command{
		Use:   "cat SANDBOX PATH...",
		Short: "Write files of a sandbox to standard output",
		Long: `Cat writes files of a sandbox to standard output, byte for byte, whether it runs or
not. A path that is not absolute begins where the sandbox's shells start.`,
		Example:           `  runtimectl cat build dist/report.json | jq .`,
		Args:              takes(2, many),
		ValidArgsFunction: p.completeSandboxes(1),
	}
	p.addPlace(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onFiles(cmd.Context(), args[0], func(files sandbox.Files, s *sandbox.Sandbox) error {
			var failures []error
			for _, path := range args[1:] {
				failures = append(failures, readFile(cmd.Context(), files, s, path, func(_ *tar.Header, content io.Reader) error {
					_, err := io.Copy(p.stdout, content)
					return err
				}))
			}
			return errors.Join(failures...)
		})
	}
	return c
}

// readFile gives a file of a sandbox to use, with what the archive says of it.
func readFile(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string, use func(h *tar.Header, content io.Reader) error) error {
	from, err := look(ctx, files, s, given)
	if err != nil {
		return err
	}
	switch {
	case !from.found:
		return fmt.Errorf("%s in sandbox %s: %w", from.path, s.ID, errNotFound)
	case !from.info.Mode.IsRegular():
		return fmt.Errorf("%w: %s in sandbox %s is no file", errConflict, from.path, s.ID)
	}
	archive, err := files.CopyOut(ctx, s, from.real)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	in := tar.NewReader(archive)
	h, err := in.Next()
	if err == nil && h.Typeflag != tar.TypeReg {
		err = errors.New("it is no file any more")
	}
	if err == nil {
		err = use(h, in)
	}
	if err != nil {
		return fmt.Errorf("reading %s in sandbox %s: %w", from.path, s.ID, err)
	}
	return nil
}
