package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/actiond/actiond/sandbox"
)

// Image looks for an image on this host. It fails with ErrNoImage, ErrInvalid
// where the name cannot be one's, or ErrUnknown.
func (h *Host) Image(ctx context.Context, name string) (*sandbox.Image, error) {
	info, err := safely(ctx, "looking for image "+name, func() (image.InspectResponse, error) {
		return h.engine.ImageInspect(ctx, name)
	})
	if isNotFound(err) {
		return nil, fmt.Errorf("%w: %s is not on this host", sandbox.ErrNoImage, name)
	}
	if isInvalid(err) {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	created, _ := time.Parse(time.RFC3339Nano, info.Created) // images without a date are known
	return &sandbox.Image{ID: info.ID, Created: created, Size: info.Size}, nil
}

// ImageNames returns the names of the images on this host, sorted.
func (h *Host) ImageNames(ctx context.Context) ([]string, error) {
	images, err := safely(ctx, "listing the images", func() ([]image.Summary, error) {
		return h.engine.ImageList(ctx, image.ListOptions{})
	})
	var names []string
	for _, i := range images {
		names = append(names, i.RepoTags...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ":<none>") })
	slices.Sort(names)
	return names, err
}

// Build makes an image from a tar archive, compressed or not, with a Dockerfile at its top, and gives it the tags.
// output gets the text of the build. The commands of the Dockerfile run in containers of the engine's own, with its
// defaults and without the limits of a sandbox.
func (h *Host) Build(ctx context.Context, archive io.Reader, tags []string, output io.Writer) error {
	answer, err := h.engine.ImageBuild(ctx, archive, build.ImageBuildOptions{Tags: tags, Remove: true, ForceRemove: true})
	if err != nil {
		return engineError(ctx, "building an image", err)
	}
	err = readReport(answer.Body, func(m jsonmessage.JSONMessage) { _, _ = io.WriteString(output, m.Stream) })
	err = errors.Join(err, answer.Body.Close())
	return engineError(ctx, "building an image", err)
}
