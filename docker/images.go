package docker

import (
	"context"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"
)

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
