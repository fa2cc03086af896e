package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/dlock-go/dlock/test/lab/page"
	"github.com/dlock-go/dlock/test/lab/stage"
	"github.com/dlock-go/dlock/test/lab/stories"
	"github.com/dlock-go/dlock/test/lab/subject"
)

// pictured is the story in the picture of the documents.
const pictured = "task-outlives-ttl"

// outputs are the files to write. An empty name means none.
type outputs struct{ html, json, docs string }

func outputFlags(flags *flag.FlagSet) *outputs {
	o := new(outputs)
	flags.StringVar(&o.html, "html", "", "write a page with timelines to this file")
	flags.StringVar(&o.json, "json", "", "write the results to this file")
	flags.StringVar(&o.docs, "docs", "", "write lab.md and its picture in this folder")
	return o
}

func (o *outputs) write(results []*stage.Result) error {
	var errs []error
	if o.json != "" {
		text, err := json.MarshalIndent(results, "", " ")
		errs = append(errs, err, os.WriteFile(o.json, append(text, '\n'), 0o644))
	}
	p := present(results)
	if o.html != "" {
		file, err := os.Create(o.html)
		if err == nil {
			err = errors.Join(p.Write(file), file.Close())
		}
		errs = append(errs, err)
	}
	if o.docs != "" {
		errs = append(errs, os.WriteFile(filepath.Join(o.docs, "lab.md"), []byte(p.Markdown()), 0o644))
		for _, story := range p.Stories {
			if story.Name == pictured {
				errs = append(errs, os.WriteFile(filepath.Join(o.docs, "lab.svg"), []byte(story.Picture()), 0o644))
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
				about, _ := subject.Named(r.Subject) // play has checked it
				s.Results = append(s.Results, page.Result{Result: r, About: about.About})
			}
		}
		if len(s.Results) > 0 {
			p.Stories = append(p.Stories, s)
		}
	}
	return p
}
