package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/internal/tail"
	"github.com/actiond/actiond/sandbox"
)

const (
	// imageBase is the default base of the image.
	imageBase = "debian:bookworm-slim"
	// imageMade stands for it where it cannot be pulled; the Makefile has the
	// same name for it.
	imageMade = "actiond-base:bookworm"
)

func (p *program) image() *cobra.Command {
	b := imageBuild{p: p}
	c := &cobra.Command{
		Use:   "image [flags]",
		Short: "Build the image with what agents usually reach for",
		Long: `Image builds an image with bash, git, Python with ipykernel, ripgrep, curl, sudo
and an ordinary user, and prints its name. No sandbox needs it: any image will do.

It is built from --base, which is pulled where it is not on the host. Where no
registry can be reached, a base of Debian's packages is made in its place, by
debootstrap, which needs root; that stands for the default base only. On standard
error it says which base it used. It does what 'make image' does, and needs the
docker command.`,
		Example: `  runtimectl image
  runtimectl image --base ubuntu:24.04 --tag agents:1`,
		Args:        command.NoArgs,
		Annotations: map[string]string{command.NoSandboxes: "yes"},
	}
	flags := c.Flags()
	flags.StringVar(&b.base, "base", imageBase, "build from this `IMAGE`, a Debian or Ubuntu")
	flags.StringVarP(&b.tag, "tag", "t", platform.ImageTag, "call the image `NAME`")
	flags.StringVarP(&b.file, "file", "f", "", "build by this `FILE` (default: the one of this version)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		b.line = p.Progress()
		defer b.line.End()
		return b.build(cmd.Context())
	}
	return c
}

// imageBuild is the building of an image.
type imageBuild struct {
	p               *program
	line            *output.Progress
	base, tag, file string
}

func (b *imageBuild) build(ctx context.Context) error {
	recipe, err := b.recipe()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("the docker command is needed: install it (Debian and Ubuntu: apt-get install docker.io)")
	}
	if err := b.docker(ctx, nil, "version", "--format", "{{.Server.Version}}"); err != nil {
		kind := sandbox.ErrUnknown
		if strings.Contains(err.Error(), "permission denied") { // the docker command's words
			kind = fmt.Errorf("%w, %w", kind, fs.ErrPermission)
		}
		return fmt.Errorf("the Docker engine cannot be reached, %w: %w", kind, err)
	}
	base, how, err := b.findBase(ctx)
	if err != nil {
		return err
	}
	b.note("base image: %s; %s", base, how)
	b.note("building %s, which takes minutes the first time", b.tag)
	// Nothing is sent but the Dockerfile, which copies nothing.
	if err := b.docker(ctx, recipe, "build", "--build-arg", "BASE="+base, "--tag", b.tag, "-"); err != nil {
		return fmt.Errorf("building %s: %w", b.tag, err)
	}
	b.line.End()
	_, err = fmt.Fprintln(b.p.Stdout, b.tag)
	return err
}

func (b *imageBuild) note(format string, args ...any) {
	b.line.End()
	_, _ = fmt.Fprintf(b.p.Stderr, "note: "+format+"\n", args...)
}

// recipe is the given Dockerfile, or the one of this program's version.
func (b *imageBuild) recipe() ([]byte, error) {
	if b.file == "" {
		return []byte(actiond.Dockerfile), nil
	}
	data, err := os.ReadFile(b.file)
	if err != nil {
		return nil, fmt.Errorf("reading the Dockerfile: %w", err)
	}
	return data, nil
}

// findBase is the image to build from, and how it was come by.
func (b *imageBuild) findBase(ctx context.Context) (base, how string, err error) {
	if b.docker(ctx, nil, "image", "inspect", b.base) == nil {
		return b.base, "it is on this host", nil
	}
	pullErr := b.docker(ctx, nil, "pull", b.base)
	switch {
	case pullErr == nil:
		return b.base, "it was pulled", nil
	case ctx.Err() != nil:
		return "", "", context.Cause(ctx)
	case b.base != imageBase:
		return "", "", fmt.Errorf("%w: %s is not on this host and cannot be pulled: give another --base: %w",
			sandbox.ErrNoImage, b.base, pullErr)
	}
	how = "it was made here of Debian's packages, since " + b.base + " cannot be pulled"
	if b.docker(ctx, nil, "image", "inspect", imageMade) == nil {
		return imageMade, how, nil
	}
	if err := b.bootstrap(ctx); err != nil {
		return "", "", fmt.Errorf("making a base image, since %s cannot be pulled (%w): %w", b.base, pullErr, err)
	}
	return imageMade, how, nil
}

// bootstrap makes a base of Debian's packages.
func (b *imageBuild) bootstrap(ctx context.Context) (err error) {
	if _, err := exec.LookPath("debootstrap"); err != nil {
		return errors.New("debootstrap is needed: apt-get install debootstrap")
	}
	if os.Geteuid() != 0 {
		return errors.New("debootstrap needs root: run this as root once")
	}
	dir, err := os.MkdirTemp("", "runtimectl-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b.note("%s cannot be pulled: making %s of Debian's packages, once, which takes minutes", b.base, imageMade)
	if err := b.command(ctx, nil, "debootstrap", "--variant=minbase", "bookworm", dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it is the image's root directory
		return err
	}
	return b.command(ctx, nil, "sh", "-ec",
		`tar -C "$1" --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' -c . | docker import - "$2"`, "sh", dir, imageMade)
}

func (b *imageBuild) docker(ctx context.Context, stdin []byte, args ...string) error {
	return b.command(ctx, stdin, "docker", args...)
}

// command runs a program. Its last line is the progress, and its last lines are
// the reason why it failed.
func (b *imageBuild) command(ctx context.Context, stdin []byte, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(string(stdin))
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	said := tail.New(output.TailBytes)
	var reading sync.WaitGroup
	reading.Go(func() { // ends when w is closed
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			_, _ = io.WriteString(said, line) // never fails
			if text := strings.TrimSpace(line); text != "" {
				b.line.Count("%s: %s", name, text)
			}
			if err != nil {
				return
			}
		}
	})
	err := cmd.Run()
	_ = w.Close() // never fails
	reading.Wait()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s %s: %w%s", name, args[0], err, output.LastLines(said.String()))
}
