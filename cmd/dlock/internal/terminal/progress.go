package terminal

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Progress shows how many steps are done, on a terminal in one line that changes.
type Progress struct {
	out      *os.File
	terminal bool
	paint    Painter

	mu            sync.Mutex
	name, counted string // counted is what Step counts besides the steps
	total, done   int
	count         int
	shown         time.Time
}

const progressWidth = 30

// NewProgress returns a progress that is shown on out.
func NewProgress(out *os.File) *Progress {
	return &Progress{out: out, terminal: Is(out), paint: PainterFor(out)}
}

// Begin starts a new count of total steps.
func (p *Progress) Begin(name string, total int, counted string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.total, p.counted = name, total, counted
	p.done, p.count, p.shown = 0, 0, time.Time{}
	p.show()
}

// Step notes one step. It is safe for concurrent use.
func (p *Progress) Step(counts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if counts {
		p.count++
	}
	p.show()
}

func (p *Progress) show() {
	if !p.terminal || time.Since(p.shown) < 80*time.Millisecond {
		return
	}
	p.shown = time.Now()
	full := progressWidth * p.done / max(1, p.total)
	fmt.Fprintf(p.out, "\r%s [%s%s] %d/%d, %d %s\x1b[K", p.paint.Paint(Bold, fmt.Sprintf("%-6s", p.name)),
		strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), p.done, p.total, p.count, p.counted)
}

// End removes the line from a terminal. Elsewhere it writes the result if that is not empty.
func (p *Progress) End(result string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		fmt.Fprint(p.out, "\r\x1b[K")
	case result != "":
		fmt.Fprintf(p.out, "%s: %s\n", p.name, result)
	}
}
