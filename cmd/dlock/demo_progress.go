package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress shows on stderr how far something is: on a terminal in one line that
// changes, elsewhere when it is done.
type progress struct {
	to       io.Writer
	terminal bool
	paint    painter

	mu      sync.Mutex
	name    string
	counted string // what is counted besides the steps
	total   int
	done    int
	count   int
	shown   time.Time
}

// progressBeat is how often the line changes.
const progressBeat = 80 * time.Millisecond

func (a *app) newProgress() *progress {
	return &progress{to: a.stderr, terminal: isTerminal(a.stderr), paint: painterFor(a.stderr)}
}

// begin is followed by total steps, of which some are counted.
func (p *progress) begin(name string, total int, counted string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.total, p.counted = name, total, counted
	p.done, p.count, p.shown = 0, 0, time.Time{}
	p.show()
}

// step may be called by many goroutines.
func (p *progress) step(counts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if counts {
		p.count++
	}
	p.show()
}

const progressWidth = 30

func (p *progress) show() {
	if !p.terminal || time.Since(p.shown) < progressBeat {
		return
	}
	p.shown = time.Now()
	full := progressWidth * p.done / max(1, p.total)
	fmt.Fprintf(p.to, "\r%s [%s%s] %d/%d, %d %s\x1b[K", p.paint.paint(bold, fmt.Sprintf("%-6s", p.name)),
		strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), p.done, p.total, p.count, p.counted)
}

// end is called with what came of it, or with nothing if it failed.
func (p *progress) end(result string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		fmt.Fprint(p.to, "\r\x1b[K")
	case result != "":
		fmt.Fprintf(p.to, "%s: %s\n", p.name, result)
	}
}
