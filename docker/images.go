package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"
)

// Image is what the engine knows of an image.
type Image struct {
	ID      string
	Created time.Time // zero: not known
	Size    int64     // bytes
}

// Image looks for an image on this host. It fails with ErrNoImage, ErrInvalid
// where the name cannot be one's, or ErrUnknown.
func (h *Host) Image(ctx context.Context, name string) (*Image, error) {
	info, err := safely(ctx, "looking for image "+name, func() (image.InspectResponse, error) {
		return h.engine.ImageInspect(ctx, name)
	})
	if isNotFound(err) {
		return nil, fmt.Errorf("%w: %s is not on this host", ErrNoImage, name)
	}
	if isInvalid(err) {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	created, _ := time.Parse(time.RFC3339Nano, info.Created) // images without a date are known
	return &Image{info.ID, created, info.Size}, nil
}

// Build makes an image from a tar archive, compressed or not, with a Dockerfile
// at its top, and gives it the tags. output gets the engine's report, a JSON
// value per line. The commands of the Dockerfile run in containers of the
// engine's own, with its defaults and without the limits of a sandbox.
func (h *Host) Build(ctx context.Context, archive io.Reader, tags []string, output io.Writer) error {
	answer, err := h.engine.ImageBuild(ctx, archive, build.ImageBuildOptions{Tags: tags, Remove: true, ForceRemove: true})
	if err != nil {
		return engineError(ctx, "building an image", err)
	}
	err = errors.Join(readPull(answer.Body, output), answer.Body.Close())
	return engineError(ctx, "building an image", err)
}
