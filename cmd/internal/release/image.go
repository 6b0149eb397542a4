package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageName is the name of the image, without its tag.
const imageName = "actiond-server"

// loadable is an entry of manifest.json, from which 'docker load' takes an image of one
// architecture where the engine does not know OCI layouts.
type loadable struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// image is an OCI layout with one image of several architectures. Each has one layer.
type image struct {
	version string
	at      time.Time
	files   []file // of the layout
	index   v1.Index
	load    []loadable
}

// add adds the image of an architecture, with the files in its root directory.
func (i *image) add(arch string, files []file) error {
	layer, err := tarball(files, i.at)
	if err != nil {
		return err
	}
	packed, err := compressed(layer)
	if err != nil {
		return err
	}
	platform := v1.Platform{Architecture: arch, OS: "linux"}
	config, err := i.put(v1.MediaTypeImageConfig, v1.Image{
		Created: &i.at, Platform: platform,
		Config: v1.ImageConfig{
			Entrypoint: []string{"/server"},
			Labels:     map[string]string{v1.AnnotationVersion: i.version, v1.AnnotationLicenses: "Apache-2.0", v1.AnnotationTitle: imageName},
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return err
	}
	blob := i.blob(v1.MediaTypeImageLayerGzip, packed)
	manifest, err := i.put(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config, Layers: []v1.Descriptor{blob},
	})
	if err != nil {
		return err
	}
	manifest.Platform = &platform
	i.index.Manifests = append(i.index.Manifests, manifest)
	i.load = append(i.load, loadable{blobName(config), []string{imageName + ":" + i.version + "-" + arch}, []string{blobName(blob)}})
	return nil
}

// tar returns the layout as a tar archive.
func (i *image) tar() ([]byte, error) {
	i.index.SchemaVersion, i.index.MediaType = 2, v1.MediaTypeImageIndex
	all, err := i.put(v1.MediaTypeImageIndex, i.index)
	if err != nil {
		return nil, err
	}
	all.Annotations = map[string]string{
		v1.AnnotationRefName: i.version, "io.containerd.image.name": "docker.io/library/" + imageName + ":" + i.version,
	}
	top := v1.Index{Versioned: i.index.Versioned, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{all}}
	for name, value := range map[string]any{v1.ImageIndexFile: top, v1.ImageLayoutFile: v1.ImageLayout{Version: v1.ImageLayoutVersion}, "manifest.json": i.load} {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", name, err)
		}
		i.files = append(i.files, file{name: name, mode: 0o644, data: data})
	}
	return tarball(sorted("", i.files...), i.at)
}

// put adds a value to the layout as a blob.
func (i *image) put(mediaType string, value any) (v1.Descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("encoding %s: %w", mediaType, err)
	}
	return i.blob(mediaType, data), nil
}

func (i *image) blob(mediaType string, data []byte) v1.Descriptor {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	i.files = append(i.files, file{name: blobName(d), mode: 0o644, data: data})
	return d
}

func blobName(d v1.Descriptor) string { return "blobs/sha256/" + d.Digest.Encoded() }

// sum is the SHA-256 of data in hexadecimal.
func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
