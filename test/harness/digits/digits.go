// Package digits writes large numbers for people.
package digits

import "strconv"

// Grouped writes a number with commas between thousands.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
