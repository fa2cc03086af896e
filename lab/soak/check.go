package soak

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dlock-go/dlock/test/harness/history"
)

// Violation is a broken promise.
type Violation struct {
	Promise string `json:"promise"`
	Text    string `json:"text"`
	Picture string `json:"picture,omitempty"` // the file
}

func (v Violation) String() string {
	text := v.Promise + ": " + v.Text
	if v.Picture != "" {
		text += "\n    picture: " + v.Picture
	}
	return text
}

// checker compares the record with what locks promise.
type checker struct {
	record *record
	file   func(name string) string   // of a picture
	woken  map[string][]time.Duration // by name: from a release to the next acquisition
}

// check checks what is complete and has not been checked yet. It returns the first violation
// of each promise.
func (c *checker) check() (found []Violation, err error) {
	for _, w := range c.record.windows() {
		pairs := w.events()
		for _, m := range history.ModelsOf(slices.Concat(pairs...), w.tokens) {
			known := slices.ContainsFunc(found, func(v Violation) bool { return v.Promise == m.Name() })
			if known || m.Check(slices.Concat(pairs...)) == "" {
				continue
			}
			v, err := c.describe(w, m, pairs)
			if err != nil {
				return found, err
			}
			found = append(found, v)
		}
		if slices.Contains(wakeNames, w.name) {
			c.measureWakes(w)
		}
	}
	return found, nil
}

// describe draws the smallest part of a window that violates a model. If that is a single hold,
// whose token is not larger than those of earlier windows, the hold before it belongs to it.
func (c *checker) describe(w *window, m history.Model, pairs [][]history.Event) (Violation, error) {
	smallest := m.Smallest(pairs)
	if w.before != nil && len(smallest) == 1 {
		with := slices.Concat([][]history.Event{{w.before.acquired, w.before.ended}}, smallest)
		for _, fresh := range history.ModelsOf(slices.Concat(with...), history.Tokens{}) {
			if fresh.Name() == m.Name() && fresh.Check(slices.Concat(with...)) != "" {
				m, smallest = fresh, with
			}
		}
	}
	events := slices.Concat(smallest...)
	v := Violation{Promise: m.Name(), Text: fmt.Sprintf("%q: %s", w.name, m.Check(events)), Picture: c.file(w.name)}
	return v, m.Draw(events, c.record.notes(events), v.Picture)
}

// measureWakes measures how long after its release a lock was acquired while another process
// waited for it undisturbed. A window may begin with an acquisition that was late.
func (c *checker) measureWakes(w *window) {
	holds := w.holds
	if w.before != nil {
		holds = slices.Insert(slices.Clone(holds), 0, w.before)
	}
	for i, h := range holds[:len(holds)-1] {
		next := holds[i+1].acquired.To
		waited := slices.ContainsFunc(holds[i+1:], func(other *hold) bool {
			return other.acquired.Worker != h.acquired.Worker && other.acquired.From < h.ended.From &&
				!c.record.disturbed(other.process, h.ended.From, next)
		})
		if h.orderly && waited {
			c.woken[w.name] = append(c.woken[w.name], time.Duration(max(0, next-h.ended.To)))
		}
	}
}

const (
	// wakeLimit is how late most waiters may be. Without a notification the lock stays free
	// until a process comes anew, or a waiter tries by itself, a second later on average.
	wakeLimit = 300 * time.Millisecond
	// fewWakes are too few to judge by.
	fewWakes = 15
)

// lateWakes judges the times between a release and the next acquisition.
func (c *checker) lateWakes() (found []Violation) {
	for _, name := range wakeNames {
		if median := c.medianWake(name); len(c.woken[name]) >= fewWakes && median > wakeLimit {
			found = append(found, Violation{Promise: "waiters are woken",
				Text: fmt.Sprintf("%q: half of %d releases that a process waited for were followed by an acquisition only %v later, or more",
					name, len(c.woken[name]), median.Round(time.Millisecond))})
		}
	}
	return found
}

func (c *checker) medianWake(name string) time.Duration {
	if len(c.woken[name]) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(c.woken[name]))
	return sorted[len(sorted)/2]
}

// pictureFile returns a new file for a picture.
func pictureFile(folder, store string, seed uint64) func(name string) string {
	n := 0
	return func(name string) string {
		n++
		return fmt.Sprintf("%s%csoak-%s-%d-%s-%d.html", folder, os.PathSeparator, store, seed, name, n)
	}
}
