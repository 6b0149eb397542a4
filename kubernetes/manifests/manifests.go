// Package manifests has the objects that install a gateway on Kubernetes. It needs no
// module of Kubernetes: programs without the driver print them too.
package manifests

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/actiond/actiond/sandbox"
)

// base is a base for kustomize, which [Gateway] returns.
//
//go:embed *.yaml
var base embed.FS

// Options say how the manifests differ from the base. The zero value of a field leaves
// the base as it is.
type Options struct {
	Namespace string
	Image     string // of the gateway, which also brings the server into Pods
	Replicas  *int   // of the gateway
	// NoEgress leaves out the egress proxy with its namespace: sandboxes can have no network
	// policies then.
	NoEgress bool
}

// Names of the base. That of the egress proxy's namespace is the other with a suffix.
const (
	namespace    = "actiond"
	egressSuffix = "-egress"
	egressFile   = "egress.yaml"
)

// label is a name of a namespace which can have egressSuffix.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,54}[a-z0-9])?$`)

// Gateway returns the objects of a gateway and of its namespace as YAML documents,
// which 'kubectl apply' takes in this order.
func Gateway(o Options) ([]byte, error) {
	if o.Namespace != "" && !label.MatchString(o.Namespace) {
		return nil, sandbox.Invalid("namespace %q: must be at most 56 characters of a-z 0-9 -, and begin and end with a letter or a digit", o.Namespace)
	}
	if strings.ContainsFunc(o.Image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, sandbox.Invalid("image %q: it has characters that names of images do not have", o.Image)
	}
	files, err := baseFiles()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range files {
		if name == egressFile && o.NoEgress {
			continue
		}
		data, err := base.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		loader := yaml.NewDecoder(bytes.NewReader(data))
		for {
			var document yaml.Node
			err := loader.Decode(&document)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading the manifests: %s: %w", name, err)
			}
			o.change(document.Content[0])
			text, err := yaml.Dump(&document, yaml.WithIndent(2), yaml.WithLineWidth(-1))
			if err != nil {
				return nil, fmt.Errorf("writing the manifests: %s: %w", name, err)
			}
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			out.Write(text)
		}
	}
	return out.Bytes(), nil
}

// baseFiles are the files of the base in the order of its kustomization.
func baseFiles() ([]string, error) {
	data, err := base.ReadFile("kustomization.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the manifests: %w", err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		return nil, fmt.Errorf("reading the manifests: %w", err)
	}
	return kustomization.Resources, nil
}

// change adapts an object of the base to the options.
func (o *Options) change(object *yaml.Node) {
	if o.Namespace != "" {
		o.move(object)
		if kind := field(object, "kind"); kind.Value == "Namespace" {
			o.rename(field(field(object, "metadata"), "name"))
		}
	}
	if name := field(field(object, "metadata"), "name"); o.Replicas != nil && name.Value == "actiond-gateway" {
		set(object, strconv.Itoa(*o.Replicas), "spec", "replicas")
	}
	if o.Image == "" {
		return
	}
	set(object, o.Image, "spec", "template", "spec", "containers", "image")
}

// move renames the namespaces in an object.
func (o *Options) move(node *yaml.Node) {
	for i, child := range node.Content {
		if name := node.Content[max(i-1, 0)].Value; node.Kind == yaml.MappingNode && i%2 == 1 && (name == "namespace" || name == "kubernetes.io/metadata.name") {
			o.rename(child)
		}
		o.move(child)
	}
}

// rename gives a namespace of the base its name.
func (o *Options) rename(node *yaml.Node) {
	switch node.Value {
	case namespace:
		node.SetString(o.Namespace)
	case namespace + egressSuffix:
		node.SetString(o.Namespace + egressSuffix)
	}
}

// set gives the fields at a path another value, where the object has them. A path goes
// through all elements of a list.
func set(object *yaml.Node, value string, at ...string) {
	for _, node := range each(object, at...) {
		if node.Kind == yaml.ScalarNode {
			comment := node.LineComment
			*node = yaml.Node{Kind: yaml.ScalarNode, LineComment: comment}
			if _, err := strconv.Atoi(value); err == nil && at[len(at)-1] == "replicas" {
				node.Value, node.Tag = value, "!!int"
			} else {
				node.SetString(value)
			}
		}
	}
}

// each returns the nodes at a path.
func each(node *yaml.Node, at ...string) (found []*yaml.Node) {
	if node.Kind == yaml.SequenceNode {
		for _, element := range node.Content {
			found = append(found, each(element, at...)...)
		}
		return found
	}
	if len(at) == 0 {
		return []*yaml.Node{node}
	}
	if child := field(node, at[0]); child != nil {
		return each(child, at[1:]...)
	}
	return nil
}

// field is the value of a field of a mapping, nil if it does not have it.
func field(node *yaml.Node, name string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}
