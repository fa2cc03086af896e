package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/page"
	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/stories"
	"github.com/dlock-go/dlock/lab/subject"
)

// pictured are the stories in pictures of the documents.
var pictured = map[string]string{"task-outlives-ttl": "lab.svg", "oversell": "oversell.svg"}

// outputs are the files to write. An empty name means none.
type outputs struct{ html, svg, save, docs string }

func outputFlags(flags *flag.FlagSet) *outputs {
	o := new(outputs)
	flags.StringVar(&o.html, "html", "", "write a page with timelines to `FILE`")
	flags.StringVar(&o.svg, "svg", "", "write a picture of the stories to `FILE`")
	flags.StringVar(&o.save, "save", "", "write the results to `FILE`, for draw")
	flags.StringVar(&o.docs, "docs", "", "write lab.md and the pictures of the documents into `DIR`")
	return o
}

// check finds out before an experiment whether its files can be written.
func (o *outputs) check() error {
	for _, name := range []string{o.html, o.svg, o.save} {
		if name == "" {
			continue
		}
		_, missing := os.Stat(name)
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("cannot write the file: %w", err)
		}
		file.Close()
		if missing != nil {
			_ = os.Remove(name) // it is written at the end
		}
	}
	return nil
}

func (o *outputs) write(results []*stage.Result) error {
	var errs []error
	put := func(name, text string) {
		if name != "" {
			errs = append(errs, os.WriteFile(name, []byte(text), 0o644))
		}
	}
	if o.save != "" {
		text, err := json.MarshalIndent(results, "", " ")
		errs = append(errs, err)
		put(o.save, string(text)+"\n")
	}
	p := present(results)
	if o.html != "" {
		var text strings.Builder
		errs = append(errs, p.Write(&text))
		put(o.html, text.String())
	}
	put(o.svg, page.Picture(p.Stories...))
	if o.docs != "" {
		put(filepath.Join(o.docs, "lab.md"), p.Markdown())
		for _, story := range p.Stories {
			if name := pictured[story.Name]; name != "" {
				put(filepath.Join(o.docs, name), page.Picture(story))
			}
		}
	}
	return errors.Join(errs...)
}

// present sorts the results by story.
func present(results []*stage.Result) page.Page {
	p := page.Page{About: fmt.Sprintf("Played on %s, on %d cores, with %s.", time.Now().UTC().Format("2 January 2006"), runtime.NumCPU(), runtime.Version())}
	for _, story := range stories.All {
		s := page.Story{Number: story.Number, Name: story.Name, Title: story.Title, Tells: story.Tells}
		for _, r := range results {
			if r.Story == story.Name {
				s.Results = append(s.Results, page.Result{Result: r, About: subject.Named(r.Subject).About})
			}
		}
		if len(s.Results) > 0 {
			p.Stories = append(p.Stories, s)
		}
	}
	return p
}
