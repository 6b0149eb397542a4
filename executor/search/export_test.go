package search

import "context"

// LinesOf returns the numbers of the lines of a text that match, found as in
// files, and one line at a time.
func LinesOf(ctx context.Context, pattern string, ignoreCase bool, text []byte) (fast, slow []int, err error) {
	g, err := newGrep(ctx, GrepQuery{Dir: "/", Pattern: pattern, IgnoreCase: ignoreCase, Limit: 1 << 30})
	if err != nil {
		return nil, nil, err
	}
	return numbersOf(g, text), numbersOf(g.slow(), text), nil
}

func (g *grep) slow() *grep {
	g.text, g.literal = nil, ""
	return g
}

func numbersOf(g *grep, text []byte) (numbers []int) {
	s := lineSearch{grep: g, limit: g.query.Limit}
	s.add(text)
	for _, l := range s.found {
		numbers = append(numbers, l.Number)
	}
	return numbers
}

// LiteralOf returns the text that every match of a pattern holds.
func LiteralOf(ctx context.Context, pattern string) (string, error) {
	g, err := newGrep(ctx, GrepQuery{Dir: "/", Pattern: pattern, Limit: 1})
	if err != nil {
		return "", err
	}
	return g.literal, nil
}
