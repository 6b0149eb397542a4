package search

import "context"

// LinesOf returns the numbers of the lines of a text that match, found as in
// files, and one line at a time.
func LinesOf(ctx context.Context, pattern string, ignoreCase bool, text []byte) (fast, slow []int, err error) {
	g, err := newGrep(ctx, GrepQuery{Dir: "/", Pattern: pattern, IgnoreCase: ignoreCase, Limit: 1 << 30})
	if err != nil {
		return nil, nil, err
	}
	for _, l := range g.lines(text) {
		fast = append(fast, l.Number)
	}
	g.text, g.literal = nil, ""
	for _, l := range g.lines(text) {
		slow = append(slow, l.Number)
	}
	return fast, slow, nil
}

// LiteralOf returns the text that every match of a pattern holds.
func LiteralOf(ctx context.Context, pattern string) (string, error) {
	g, err := newGrep(ctx, GrepQuery{Dir: "/", Pattern: pattern, Limit: 1})
	if err != nil {
		return "", err
	}
	return g.literal, nil
}
