package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/stories"
	"github.com/dlock-go/dlock/lab/subject"
)

// together is how many experiments run at a time: they mostly wait. Those that measure run alone.
const together = 2

// player plays stories.
type player struct {
	jobs    []job
	options stage.Options
	seed    uint64
	json    bool
	out     io.Writer

	mu  sync.Mutex // guards the output and the fields below
	bad int
	err error // of the output
}

// check rejects options that no story takes.
func (p *player) check() error {
	guarded := slices.ContainsFunc(p.jobs, func(j job) bool { return len(j.Guards) > 0 })
	if !guarded && p.options != (stage.Options{}) {
		return errors.New("a size, --db and the URL of a store are for oversell, token and pause")
	}
	return p.options.Check()
}

// announce says what will be played, and what will be started for it.
func (p *player) announce() {
	var starts []string
	for i, j := range p.jobs {
		if i == 0 || j.Name != p.jobs[i-1].Name {
			if len(p.jobs) <= together {
				fmt.Fprintf(os.Stderr, "%s\n\n%s\n\n", j.Title, wrap(j.Tells, 100))
			}
		}
		if (len(j.On) > 0 || stories.Starts(j.Store)) && !slices.Contains(starts, j.Store) {
			starts = append(starts, j.Store)
		}
	}
	if len(starts) > 0 {
		fmt.Fprintf(os.Stderr, "servers are started and stopped for each result: %s\n", strings.Join(starts, ", "))
	}
}

// playAll plays the stories and reports each verdict as it is known. The error says
// how many verdicts are not as they have to be.
func (p *player) playAll(ctx context.Context) ([]*stage.Result, error) {
	p.announce()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type part struct {
		job
		stories.Case
	}
	var parts []part
	for _, j := range p.jobs {
		for _, c := range j.Cases {
			if why := subject.Named(c.Subject).Missing(); why != nil {
				fmt.Fprintf(os.Stderr, "    %-24s %-24s left out: %v\n", j.Name, c.Subject, why)
				continue
			}
			parts = append(parts, part{j, c})
		}
	}
	results := make([]*stage.Result, len(parts))
	var work sync.WaitGroup
	slots := make(chan struct{}, together)
	for i, one := range parts {
		needs := 1
		if len(one.Guards) > 0 {
			needs = together
		}
		for range needs {
			slots <- struct{}{} // experiments end soon after ctx
		}
		if ctx.Err() != nil {
			break
		}
		work.Go(func() {
			results[i] = p.play(ctx, one.job, one.Case)
			if ctx.Err() == nil {
				if err := p.report(results[i]); err != nil {
					cancel(err)
				}
			}
			for range needs {
				<-slots
			}
		})
	}
	work.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if !p.json {
		p.err = p.tables(results)
	}
	if p.bad > 0 {
		p.err = errors.Join(p.err, fmt.Errorf("%d of %d verdicts are not as they have to be", p.bad, len(results)))
	}
	return results, p.err
}

// play plays a story with one subject on a new server, or on a store that exists.
func (p *player) play(ctx context.Context, j job, c stories.Case) *stage.Result {
	server, err := j.Start()
	if err != nil {
		return &stage.Result{Story: j.Name, Store: j.Store, Subject: c.Subject, Expected: c.Expect, Err: p.options.Clean(err.Error())}
	}
	e := stage.Experiment{Subject: subject.Named(c.Subject), Server: server, TTL: j.TTL, Seed: p.seed, Play: j.Play}
	if len(j.Guards) > 0 {
		e.Lock, e.Options = "dlock-lab/"+j.Name, p.options
		if p.options.TTL > 0 {
			e.TTL = p.options.TTL
		}
	}
	r := stage.Perform(ctx, e)
	r.Story, r.Store, r.Expected = j.Name, j.Store, c.Expect
	if err := server.Stop(); err != nil && ctx.Err() == nil {
		r.Err = strings.TrimSpace(r.Err + " " + err.Error())
	}
	p.clean(r)
	return r
}

// clean removes passwords from what libraries said.
func (p *player) clean(r *stage.Result) {
	r.Err = p.options.Clean(r.Err)
	for i := range r.Record.Events {
		r.Record.Events[i].Text = p.options.Clean(r.Record.Events[i].Text)
	}
}

// report prints a result.
func (p *player) report(r *stage.Result) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.OK() {
		p.bad++
	}
	fmt.Fprintln(os.Stderr, line(r))
	if !p.json {
		return nil
	}
	_, err := p.out.Write(jsonLine(r))
	return err
}

// line is a result in a line.
func line(r *stage.Result) string {
	mark, verdict := "ok ", string(r.Verdict)
	switch {
	case r.Err != "":
		mark, verdict = "BAD", "the experiment failed: "+r.Err
	case !r.OK():
		mark = "BAD"
		verdict += fmt.Sprintf(", must be %q", r.Expected)
	case r.Role == subject.Wrong:
		verdict += ": caught"
	case r.Role == subject.Peer:
		mark = "   "
	}
	return fmt.Sprintf("%s %-24s %-24s %-28s %v", mark, r.Story, r.Subject, verdict, r.Took.Round(100*time.Millisecond))
}

// jsonLine is a result in a line of JSON: the subject, which is a guard, and what was measured.
func jsonLine(r *stage.Result) []byte {
	figures := append([]stage.Figure{{Name: "guard", Value: r.Subject}, {Name: "story", Value: r.Story}, {Name: "store", Value: r.Store},
		{Name: "verdict", Value: r.Verdict}, {Name: "ok", Value: r.OK()}}, r.Figures...)
	if r.Err != "" {
		figures = append(figures, stage.Figure{Name: "error", Value: r.Err})
	}
	var b bytes.Buffer
	for i, f := range figures {
		value, err := json.Marshal(f.Value)
		if err != nil {
			panic(err) // numbers and texts have a form
		}
		fmt.Fprintf(&b, "%s%q:%s", map[bool]string{true: "{", false: ","}[i == 0], f.Name, value)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// tables prints what the stories measured.
func (p *player) tables(results []*stage.Result) error {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	story := ""
	for _, r := range results {
		if len(r.Figures) == 0 {
			continue
		}
		titles, cells := "GUARD\t", r.Subject+"\t"
		for _, f := range r.Figures {
			if !f.Detail {
				titles += strings.ToUpper(strings.ReplaceAll(f.Name, "_", " ")) + "\t"
				cells += fmt.Sprint(f.Value) + "\t"
			}
		}
		if where := r.Story + r.Store; where != story {
			story = where
			fmt.Fprintf(table, "\n%s\n", titles)
		}
		fmt.Fprintln(table, cells)
	}
	_ = table.Flush() // a buffer takes everything
	_, err := b.WriteTo(p.out)
	return err
}

// wrap breaks a text into lines.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
