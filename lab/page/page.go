// Package page draws the results of the experiments: as one page of HTML that needs
// no other file, and as a document in Markdown.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/subject"
)

// Page is all that was found.
type Page struct {
	About   string // when and where the experiments ran
	Stories []Story
}

// Story is an experiment with its results.
type Story struct {
	Number             int
	Name, Title, Tells string
	Results            []Result
}

// Result is what an experiment showed about a way to lock.
type Result struct {
	*stage.Result
	About string // how it locks
}

// Class is the colour of the verdict.
func (r Result) Class() string {
	switch {
	case !r.OK():
		return "wrong"
	case r.Verdict == stage.Held, r.Verdict == stage.Refused:
		return "good"
	case r.Verdict == stage.TwoFenced:
		return "fair"
	}
	return "bad"
}

// Says is the verdict, or why there is none.
func (r Result) Says() string {
	switch {
	case r.Err != "":
		return "the experiment failed: " + r.Err
	case !r.OK():
		return fmt.Sprintf("%s, and must be %q", r.Verdict, r.Expected)
	}
	return string(r.Verdict)
}

// Numbers says what was measured, and whether the account adds up.
func (r Result) Numbers() string {
	var all []string
	for _, f := range r.Figures {
		if !f.Detail {
			all = append(all, fmt.Sprintf("%s %v", strings.ReplaceAll(f.Name, "_", " "), f.Value))
		}
	}
	open, fenced := r.Account.Open, r.Account.Fenced
	if len(all) == 0 {
		all = append(all, fmt.Sprintf("%d deposits, balance %d without a fence", open.Accepted, open.Balance))
		if fenced.Accepted > 0 {
			all = append(all, fmt.Sprintf("%d deposits, balance %d, %d refused with the fence", fenced.Accepted, fenced.Balance, fenced.Refused))
		}
	}
	return strings.Join(all, "; ")
}

// Summary counts the verdicts.
func (p Page) Summary() string {
	var says []string
	count := func(role subject.Role, counts func(r Result) bool) (n, all int) {
		for _, story := range p.Stories {
			for _, r := range story.Results {
				if r.Role == role {
					all++
					if counts(r) {
						n++
					}
				}
			}
		}
		return n, all
	}
	if held, all := count(subject.Ours, func(r Result) bool { return r.Class() == "good" }); all > 0 {
		limits, _ := count(subject.Ours, func(r Result) bool { return r.OK() && r.Class() != "good" })
		says = append(says, fmt.Sprintf("dlock held, or its token had the stale write refused, in %d of %d experiments; "+
			"in %d it had the limits that the page of the store tells.", held, all, limits))
	}
	if caught, all := count(subject.Wrong, func(r Result) bool { return r.OK() }); all > 0 {
		says = append(says, fmt.Sprintf("%d of %d wrong ways to lock were caught.", caught, all))
	}
	if failing, all := count(subject.Peer, func(r Result) bool { return r.Class() == "bad" }); all > 0 {
		says = append(says, fmt.Sprintf("Other libraries failed in %d of %d.", failing, all))
	}
	return strings.Join(says, " ")
}

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":    func() template.CSS { return style },
	"timeline": func(r Result) template.HTML { return template.HTML(timeline(r.Record)) }, //nolint:gosec // timeline escapes its texts
}).Parse(source))

// Write writes the page.
func (p Page) Write(out io.Writer) error { return page.Execute(out, p) }

// Markdown returns the document.
func (p Page) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The laboratory

How distributed locks fail, with real processes and servers: the same harm, at the same points, to the wrong ways to lock that
articles warn of, to other libraries, and to dlock. This page is written by the program that plays the stories:

    make lab                                        # all of them, with a page of timelines in lab.html
    go run ./lab                                    # lists them
    go run ./lab NAME [--store STORE] [--html FILE]    # the page tells the story, and draws what happened

Three stories need no server and nothing else that is not in this repository: `+"`oversell`, `token` and `pause`"+`. They take any store
(`+"`--store URL`"+`, or `+"`--store redis`"+` to have one started), and a real database for the stock (`+"`--db URL`"+`). `+"`go run ./lab --help`"+` lists
their sizes; `+"`--json`"+` prints a line for each result. The other stories start the servers that they need, on Linux.

The stories end where [the soak](soak.md) begins: it lets processes lock for a long time while faults happen at random, and
checks every acquisition. [bugs.md](bugs.md) names the bugs that locks really had, and what reproduces each.

%s

%s

| verdict | means |
|---|---|
| held | one holder at a time, and each process got its turn |
| stale write refused | a process wrote after its lock had expired, and the fence refused the write |
| stale write accepted | a process wrote after its lock had expired, and nothing refused the write |
| herd | one holder at a time, but every release woke all waiters |
| stuck | a process did not get the lock, although no living process had it |
| two holders, fence held | two processes believed to have the lock, and the fence refused the writes of the older one |
| two holders | two processes believed to have the lock at the same time |

The verdicts on wrong ways to lock and on dlock must be these in every run, or the program fails. Those on other libraries are
reported as they were in this run: some depend on how fast the library reconnects.

| story | NAME | wrong ways to lock | other libraries | dlock |
|---|---|---|---|---|
`, p.Summary(), p.About)
	for _, s := range p.Stories {
		fmt.Fprintf(&b, "| %d. %s | `%s` | %s | %s | %s |\n", s.Number, s.Title, s.Name,
			s.cell(subject.Wrong), s.cell(subject.Peer), s.cell(subject.Ours))
	}
	return b.String()
}

// cell lists the verdicts on the subjects with a role, and the subjects of each.
func (s Story) cell(role subject.Role) string {
	var verdicts []string
	subjects := make(map[string][]string)
	for _, r := range s.Results {
		if r.Role == role {
			says := r.Says()
			if subjects[says] == nil {
				verdicts = append(verdicts, says)
			}
			subjects[says] = append(subjects[says], r.Subject)
		}
	}
	if verdicts == nil {
		return "–"
	}
	for i, says := range verdicts {
		verdicts[i] = "**" + says + "**: " + strings.Join(subjects[says], ", ")
	}
	return strings.Join(verdicts, "<br>")
}
