package sqldb

import "time"

// The janitors of both stores delete rows by the same rules.
const (
	JanitorAge      = time.Hour        // how long a lock must have been free
	JanitorInterval = 10 * time.Minute // between two runs, by any store
)

// RunJanitor calls clean at each interval until done is closed, and at once if it is due. What
// fails is tried again at the next interval.
func RunJanitor(done <-chan struct{}, due bool, clean func() error) {
	ticker := time.NewTicker(JanitorInterval)
	defer ticker.Stop()
	for ; ; due = true {
		if due {
			_ = clean()
		}
		select {
		case <-done:
			return
		case <-ticker.C:
		}
	}
}

// JanitorPage is what a janitor reads at once, so that a page without old rows keeps no
// writer waiting.
type JanitorPage struct {
	Rows    int
	Last    string   // the key of the last row
	Old     []string // the keys of rows that may be deleted
	Highest int64    // the highest of their tokens
}

// Add reads a row: its key, its token, and whether it may be deleted.
func (p *JanitorPage) Add(scan func(...any) error) error {
	var token int64
	var old bool
	err := scan(&p.Last, &token, &old)
	p.Rows++
	if old {
		p.Old, p.Highest = append(p.Old, p.Last), max(p.Highest, token)
	}
	return err
}
