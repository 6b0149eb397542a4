package edit

import "github.com/actiond/actiond/executor/internal/linediff"

// difflib returns the hunks between the equal lines that Python's difflib.SequenceMatcher finds: the longest run of
// equal lines first, the uppermost of several, and then the same above and below it. A line that makes up more than a
// hundredth of a long text does not begin a run. a and b are lines by number, below count.
func difflib(a, b []rune, count int) []linediff.Hunk {
	m := &matcher{a: a, b: b, places: make([][]int, count), run: make([]int, len(b)+1), last: make([]int, len(b)+1)}
	popular := len(b)
	if len(b) >= 200 {
		popular = len(b)/100 + 1
	}
	counts := make([]int, count)
	for _, line := range b {
		counts[line]++
	}
	rest := make([]int, len(b)) // one allocation for the places of all lines
	for line, n := range counts {
		if n <= popular {
			m.places[line], rest = rest[:0:n], rest[n:]
		}
	}
	for j, line := range b {
		if counts[line] <= popular {
			m.places[line] = append(m.places[line], j)
		}
	}
	m.match(0, len(a), 0, len(b))
	m.Equal(len(a), len(b), 0)
	return m.List
}

type matcher struct {
	linediff.Hunks
	a, b   []rune
	places [][]int // of a line in b
	// run[j+1] is the number of equal lines up to a[i] and b[j], for the current i; last is that of the line before.
	run, last []int
}

func (m *matcher) match(a0, a1, b0, b1 int) {
	i, j, n := m.longest(a0, a1, b0, b1)
	if n == 0 {
		return
	}
	m.match(a0, i, b0, j)
	m.Equal(i, j, n)
	m.match(i+n, a1, j+n, b1)
}

// longest returns the first of the longest runs of equal lines.
func (m *matcher) longest(a0, a1, b0, b1 int) (besti, bestj, best int) {
	besti, bestj = a0, b0
	for i := a0; i < a1; i++ {
		for _, j := range m.within(i, b0, b1) {
			n := m.last[j] + 1
			m.run[j+1] = n
			if n > best {
				besti, bestj, best = i-n+1, j-n+1, n
			}
		}
		if i > a0 {
			m.clear(m.last, i-1, b0, b1)
		}
		m.run, m.last = m.last, m.run
	}
	if a1 > a0 {
		m.clear(m.last, a1-1, b0, b1)
	}
	for besti > a0 && bestj > b0 && m.a[besti-1] == m.b[bestj-1] {
		besti, bestj, best = besti-1, bestj-1, best+1
	}
	for besti+best < a1 && bestj+best < b1 && m.a[besti+best] == m.b[bestj+best] {
		best++
	}
	return besti, bestj, best
}

// within returns the places of the line a[i] in a part of b.
func (m *matcher) within(i, b0, b1 int) []int {
	places := m.places[m.a[i]]
	for len(places) > 0 && places[0] < b0 {
		places = places[1:]
	}
	for len(places) > 0 && places[len(places)-1] >= b1 {
		places = places[:len(places)-1]
	}
	return places
}

// clear resets the entries of a row that the line a[i] has set.
func (m *matcher) clear(row []int, i, b0, b1 int) {
	for _, j := range m.within(i, b0, b1) {
		row[j+1] = 0
	}
}
