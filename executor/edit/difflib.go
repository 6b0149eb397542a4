package edit

// difflib finds the equal lines as Python's difflib.SequenceMatcher does: the longest stretch of equal lines first, the
// uppermost of several, and then the same above and below it. Lines that make up more than a hundredth of a long text do
// not begin a stretch.
func difflib(d *differ) {
	m := &matcher{differ: d, places: make([][]int, len(d.facts)), run: make([]int, len(d.b)+1), last: make([]int, len(d.b)+1)}
	// All places lie in one array, by line. Line 0 is any that a does not have.
	counts := make([]int, len(d.facts))
	for _, id := range d.b {
		counts[id]++
	}
	all, popular := make([]int, len(d.b)), len(d.b)
	if n := len(d.b); n >= 200 {
		popular = n/100 + 1
	}
	for id, n := range counts {
		m.places[id], all = all[:0:n], all[n:]
	}
	for j, id := range d.b {
		if id != 0 && counts[id] <= popular {
			m.places[id] = append(m.places[id], j)
		}
	}
	m.match(0, len(d.a), 0, len(d.b))
}

type matcher struct {
	*differ
	places [][]int // where in b a line stands
	// run[j+1] is how many lines up to a[i] and b[j] are equal, for the i at hand; last is that of the line before.
	run, last []int
}

func (m *matcher) match(a0, a1, b0, b1 int) {
	i, j, n := m.longest(a0, a1, b0, b1)
	if n == 0 {
		return
	}
	m.match(a0, i, b0, j)
	m.equal(i, j, n)
	m.match(i+n, a1, j+n, b1)
}

// longest returns the first of the longest stretches of equal lines.
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

// within are the places of the line a[i] in a part of b.
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

// clear takes back what the line a[i] has left in a row.
func (m *matcher) clear(row []int, i, b0, b1 int) {
	for _, j := range m.within(i, b0, b1) {
		row[j+1] = 0
	}
}
