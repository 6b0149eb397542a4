package api

import "strings"

// note describes a running command.
func note(w *Waiting) string {
	if w == nil {
		return ""
	}
	return "\n[" + w.Text + "]"
}

// Text returns an observation for a model: the text, with the notes of the server around
// the output of a command and a line about denials, and the images as data URLs.
func Text(o Observation) (text string, images []string) {
	text, images = bareText(o)
	if n := NetworkOf(o); n != nil {
		if text != "" {
			text += "\n"
		}
		text += n.Text()
	}
	return text, images
}

func bareText(o Observation) (text string, images []string) {
	switch o := o.(type) {
	case RunObservation:
		return o.Metadata.Prefix + o.Content + o.Metadata.Suffix + note(o.Metadata.Waiting), nil
	case ExecObservation:
		return o.Content + o.note() + note(o.Waiting), nil
	case IPythonObservation:
		return o.Content, o.ImageURLs
	case ReadObservation:
		if strings.HasPrefix(o.Content, "data:image/") {
			return "", []string{o.Content}
		}
		return o.Content, nil
	case BrowseObservation:
		if o.Screenshot != "" {
			images = []string{o.Screenshot}
		}
		return o.Content, images
	default:
		return Content(o), nil
	}
}
