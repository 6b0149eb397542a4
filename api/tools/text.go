package tools

import (
	"strings"

	"github.com/actiond/actiond/api"
)

// note says what a command does that still runs.
func note(w *api.Waiting) string {
	if w == nil {
		return ""
	}
	return "\n[" + w.Text + "]"
}

// Text returns what a model reads of an observation: the words, with the notes
// of the server around the output of a command, and the images as data URLs.
func Text(o api.Observation) (text string, images []string) {
	switch o := o.(type) {
	case api.RunObservation:
		return o.Metadata.Prefix + o.Content + o.Metadata.Suffix + note(o.Metadata.Waiting), nil
	case api.ExecObservation:
		return o.Content + note(o.Waiting), nil
	case api.IPythonObservation:
		return o.Content, o.ImageURLs
	case api.ReadObservation:
		if strings.HasPrefix(o.Content, "data:image/") {
			return "", []string{o.Content}
		}
		return o.Content, nil
	case api.BrowseObservation:
		if o.Screenshot != "" {
			images = []string{o.Screenshot}
		}
		return o.Content, images
	default:
		return api.Content(o), nil
	}
}
