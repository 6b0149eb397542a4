// Package editdistance counts the elements to insert, delete or replace between two lists (Levenshtein).
package editdistance

// Bounded returns the edit distance of a and b, or most+1 if it is greater than most. It examines a band of that width.
func Bounded[T comparable](a, b []T, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		first, last := max(1, i-most), min(len(b), i+most)
		diagonal := row[first-1]
		row[first-1] = most + 1
		if first == 1 {
			row[0] = i
		}
		best := row[first-1]
		for j := first; j <= last; j++ {
			above := most + 1
			if j < i+most {
				above = row[j]
			}
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, above, row[j-1])
			}
			diagonal, row[j] = row[j], cost
			best = min(best, cost)
		}
		if best > most {
			return most + 1
		}
	}
	return min(row[len(b)], most+1)
}
