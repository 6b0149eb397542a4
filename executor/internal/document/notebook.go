package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// lines is a text, which a notebook has as a string or as a list of them.
type lines string

func (l *lines) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*l = lines(text)
		return nil
	}
	var list []string
	err := json.Unmarshal(data, &list)
	*l = lines(strings.Join(list, ""))
	return err
}

type notebook struct {
	Cells    []cell
	Metadata struct {
		LanguageInfo struct{ Name string } `json:"language_info"`
	}
}

type cell struct {
	CellType string `json:"cell_type"`
	Source   lines
	Outputs  []struct {
		Text      lines
		Data      map[string]json.RawMessage
		Name      string `json:"ename"`
		Value     string `json:"evalue"`
		Traceback []string
	}
}

func readNotebook(in io.ReaderAt, size int64, o *output) error {
	data, err := io.ReadAll(io.NewSectionReader(in, 0, size))
	if err != nil {
		return err
	}
	var n notebook
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("it is not a notebook: %w", err)
	}
	if n.Cells == nil {
		return errors.New("it is not a notebook of format 4: it has no cells")
	}
	for i, c := range n.Cells {
		if err := c.write(i+1, n.Metadata.LanguageInfo.Name, o); err != nil {
			return err
		}
	}
	return nil
}

func (c *cell) write(number int, language string, o *output) error {
	if c.CellType != "code" {
		return o.block(string(c.Source))
	}
	if err := o.block(fmt.Sprintf("<!-- Cell %d -->\n%s", number, fenced(language, string(c.Source)))); err != nil {
		return err
	}
	for _, out := range c.Outputs {
		var text strings.Builder
		text.WriteString(string(out.Text))
		var plain lines
		if json.Unmarshal(out.Data["text/plain"], &plain) == nil {
			text.WriteString(string(plain))
		}
		if out.Name != "" {
			text.WriteString(out.Name + ": " + out.Value)
		}
		for _, kind := range slices.Sorted(maps.Keys(out.Data)) {
			if strings.HasPrefix(kind, "image/") {
				text.WriteString("\n[" + kind + "]")
			}
		}
		if strings.TrimSpace(text.String()) == "" {
			continue
		}
		if err := o.block("Output:\n" + fenced("", text.String())); err != nil {
			return err
		}
	}
	return nil
}

// fenced returns a block of code, within a fence that the text does not have.
func fenced(language, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + language + "\n" + strings.Trim(text, "\n") + "\n" + fence
}
