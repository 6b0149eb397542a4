package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/tail"
	"github.com/actiond/actiond/sandbox"
)

const (
	// registryPrefix is the prefix of the names of images that are built here, so that
	// none replaces another image of the host.
	registryPrefix = "actiond"
	// maxContext limits the size of a build context.
	maxContext = 256 << 20
	// maxField limits the other fields of the form.
	maxField = 1 << 10
	// maxTags limits the names of an image.
	maxTags = 16
	// buildTime limits a build: clients wait as long.
	buildTime = 30 * time.Minute
	// maxBuilds is the number of builds whose status is kept.
	maxBuilds = 32
	// reportTail is how many bytes of the engine's report are in the error of a build.
	reportTail = 4 << 10
)

func (g *Gateway) registryPrefix(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.RegistryPrefix{RegistryPrefix: registryPrefix})
}

func (g *Gateway) imageExists(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("image")
	if name == "" {
		return refuse(http.StatusUnprocessableEntity, "The query must name an image: ?image=NAME")
	}
	images, err := sandbox.Needs[sandbox.Images](g.cfg.Driver, "look for images")
	if err != nil {
		return err
	}
	info, err := images.Image(r.Context(), name)
	switch {
	case errors.Is(err, sandbox.ErrNoImage):
		return writeJSON(w, http.StatusOK, api.ImageExists{})
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusOK, api.ImageExists{Exists: true, Image: &api.ImageInfo{
		UploadTime: info.Created.UTC().Format(time.RFC3339), Size: info.Size,
	}})
}

// builds are the running builds of images, and the results of the last ones.
type builds struct {
	mu   sync.Mutex
	all  map[string]*api.Build
	ids  []string // the eldest first
	busy context.CancelFunc
	over sync.WaitGroup
}

func newBuilds() *builds { return &builds{all: map[string]*api.Build{}} }

// build reads a build context and begins the build of its image.
func (g *Gateway) build(w http.ResponseWriter, r *http.Request) error {
	images, err := sandbox.Needs[sandbox.Images](g.cfg.Driver, "build images")
	if err != nil {
		return err
	}
	archive, tags, err := readBuild(w, r)
	if err != nil {
		return err
	}
	status, err := g.builds.begin(r.Context(), images, archive, tags, g.stopping.Load)
	if err != nil {
		_ = archive.Close()
		return err
	}
	return writeJSON(w, http.StatusOK, status)
}

// readBuild reads the form into a file that no longer has a name.
func readBuild(w http.ResponseWriter, r *http.Request) (archive *os.File, tags []string, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, int64(base64.StdEncoding.EncodedLen(maxContext))+maxBody)
	form, err := r.MultipartReader()
	if err != nil {
		return nil, nil, refuse(http.StatusBadRequest, "The body must be multipart/form-data: %v", err)
	}
	archive, err = os.CreateTemp("", "actiond-build-")
	if err != nil {
		return nil, nil, fmt.Errorf("writing the build context: %w", err)
	}
	defer func() {
		if err != nil {
			_ = archive.Close()
		}
	}()
	if err := os.Remove(archive.Name()); err != nil {
		return nil, nil, fmt.Errorf("writing the build context: %w", err)
	}
	var size int64
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, httpserver.UnreadBody(r, err, refuse)
		}
		switch part.FormName() {
		case "context":
			if size, err = io.Copy(archive, base64.NewDecoder(base64.StdEncoding, part)); err != nil {
				return nil, nil, httpserver.UnreadBody(r, err, refuse)
			}
		case "target_image", "tags":
			tag, err := io.ReadAll(io.LimitReader(part, maxField))
			if err != nil {
				return nil, nil, httpserver.UnreadBody(r, err, refuse)
			}
			tags = append(tags, string(tag))
		}
		if len(tags) > maxTags {
			return nil, nil, refuse(http.StatusUnprocessableEntity, "An image has at most %d names", maxTags)
		}
	}
	if size == 0 || len(tags) == 0 {
		return nil, nil, refuse(http.StatusUnprocessableEntity, "The form must have the fields context, a tar archive in base64, and target_image")
	}
	for _, tag := range tags {
		if !strings.HasPrefix(tag, registryPrefix+"/") {
			return nil, nil, refuse(http.StatusUnprocessableEntity, "The image's name %.256q must begin with %s/, as /registry_prefix says", tag, registryPrefix)
		}
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return nil, nil, fmt.Errorf("reading the build context: %w", err)
	}
	return archive, tags, nil
}

// begin builds in the background, one image at a time: a build may use the whole
// machine. It closes the archive at the end.
func (b *builds) begin(ctx context.Context, images sandbox.Images, archive *os.File, tags []string, stopping func() bool) (api.Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case stopping():
		return api.Build{}, errStopping
	case b.busy != nil:
		return api.Build{}, api.TooMany("Another image is being built; try again after its end")
	}
	made := &api.Build{BuildID: random.Hex(8), Status: "PENDING", Image: tags[0]}
	if b.ids = append(b.ids, made.BuildID); len(b.ids) > maxBuilds {
		delete(b.all, b.ids[0])
		b.ids = b.ids[1:]
	}
	b.all[made.BuildID] = made
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), buildTime)
	b.busy = cancel
	b.over.Go(func() {
		defer cancel()
		report := tail.New(reportTail)
		err := images.Build(ctx, archive, tags, report)
		_ = archive.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy = nil
		switch {
		case err == nil:
			made.Status = "SUCCESS"
		case errors.Is(ctx.Err(), context.Canceled):
			made.Status, made.Error = "CANCELLED", errStopping.Error()
		default:
			made.Status, made.Error = "FAILURE", err.Error()+"\n"+report.String()
		}
	})
	return *made, nil
}

func (g *Gateway) buildStatus(w http.ResponseWriter, r *http.Request) error {
	id := r.URL.Query().Get("build_id")
	g.builds.mu.Lock()
	made, ok := g.builds.all[id]
	var status api.Build
	if ok {
		status = *made
	}
	g.builds.mu.Unlock()
	if !ok {
		return refuse(http.StatusNotFound, "Build %.64q is unknown: if this gateway was restarted since, start the build again", id)
	}
	return writeJSON(w, http.StatusOK, status)
}

// close ends the running build and waits for its end.
func (b *builds) close() {
	b.mu.Lock()
	if b.busy != nil {
		b.busy()
	}
	b.mu.Unlock()
	b.over.Wait()
}
