package browse

import (
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"golang.org/x/net/html"
)

// toMarkdown converts a page of HTML. Links keep their address, images become
// their alternative text, and the cells of a table row one line: a page can
// make the output of the library's table renderer as large as it likes, by
// colspan.
func toMarkdown(source string) (string, error) {
	conv := converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin()))
	conv.Register.RendererFor("img", converter.TagTypeInline, renderImage, converter.PriorityEarly)
	conv.Register.RendererFor("tr", converter.TagTypeBlock, renderRow, converter.PriorityEarly)
	for _, cell := range []string{"td", "th"} {
		conv.Register.RendererFor(cell, converter.TagTypeInline, renderCell, converter.PriorityEarly)
	}
	return conv.ConvertString(source)
}

func renderImage(_ converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	for _, a := range n.Attr {
		if a.Key == "alt" {
			_, _ = w.WriteString(strings.Join(strings.Fields(a.Val), " "))
		}
	}
	return converter.RenderSuccess
}

func renderRow(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	_, _ = w.WriteString("\n\n")
	ctx.RenderChildNodes(ctx, w, n)
	_, _ = w.WriteString("\n\n")
	return converter.RenderSuccess
}

func renderCell(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	ctx.RenderChildNodes(ctx, w, n)
	for next := n.NextSibling; next != nil; next = next.NextSibling {
		if next.Type == html.ElementNode {
			_, _ = w.WriteString(" | ")
			break
		}
	}
	return converter.RenderSuccess
}
