package output

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// WriteYAML writes a JSON value as YAML, with members in the same order.
func WriteYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return err
	}
	out, err := yaml.Dump(node, yaml.WithLineWidth(-1))
	if err != nil {
		return err
	}
	_, err = w.Write(escapeYAML(out))
	return err
}

// yamlNode turns the next JSON value of d into a node.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	node := &yaml.Node{}
	switch token := token.(type) {
	case json.Delim:
		node.Kind = yaml.MappingNode
		if token == '[' {
			node.Kind = yaml.SequenceNode
		}
	case json.Number:
		node.Kind, node.Value = yaml.ScalarNode, token.String()
		return node, nil
	case string:
		if strings.ContainsFunc(token, unseen) { // see escapeYAML
			*node = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token, Style: yaml.DoubleQuotedStyle}
			return node, nil
		}
		return node, node.Encode(token)
	default:
		return node, node.Encode(token)
	}
	for d.More() {
		// Of an object these are names and values in turn.
		child, err := yamlNode(d)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, child)
	}
	_, err = d.Token() // the end of the object or list
	return node, err
}
