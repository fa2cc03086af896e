package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock/driver"
)

// Model describes the legal sequences of events on one name, as if every event
// happened at a single instant. A history is legal if each event can be assigned
// such an instant between its From and its To.
type Model struct {
	name  string
	kinds []string // the events that the model covers
	step  func(state any, d Event) (legal bool, next any)
	start any
}

// ModelsOf returns the promises to check for the events of one name. before are the largest
// tokens of the name in earlier events.
func ModelsOf(events []Event, before Tokens) []Model {
	fence := fenceModel
	fence.start = before
	for _, d := range events {
		switch {
		case d.Mode.Limit > 0:
			return []Model{fence, permitModel}
		case d.Mode.Shared:
			return []Model{fence, readWriteModel, registerModel}
		}
	}
	return []Model{fence, mutexModel, registerModel}
}

// fenceModel requires that every exclusive grant has a larger token than the grants before
// it, and every other grant a larger one than the exclusive grants before it.
var fenceModel = Model{
	name:  "tokens rise",
	kinds: []string{Acquired},
	start: Tokens{},
	step:  func(before any, d Event) (bool, any) { return before.(Tokens).step(d) },
}

// Tokens are the largest tokens of a name so far.
type Tokens struct{ Exclusive, All uint64 }

func (t Tokens) step(d Event) (legal bool, next Tokens) {
	if d.Mode == (driver.Mode{}) {
		return d.Token > t.All, Tokens{d.Token, d.Token}
	}
	return d.Token > t.Exclusive, Tokens{t.Exclusive, max(t.All, d.Token)}
}

// After returns the largest tokens after events that follow the rules.
func (t Tokens) After(events []Event) Tokens {
	for _, d := range events {
		if d.Kind == Acquired {
			t.All = max(t.All, d.Token)
			if d.Mode == (driver.Mode{}) {
				t.Exclusive = max(t.Exclusive, d.Token)
			}
		}
	}
	return t
}

// mutexModel requires that at most one worker at a time trusts its lease.
var mutexModel = Model{
	name:  "one holder at a time",
	kinds: []string{Acquired, Ended},
	start: "",
	step: func(holder any, d Event) (bool, any) {
		if d.Kind == Acquired {
			return holder == "", d.Hold
		}
		return holder == d.Hold, ""
	},
}

// readWriteModel requires that a worker that trusts an exclusive lease is the only one.
var readWriteModel = Model{
	name:  "one writer or readers",
	kinds: []string{Acquired, Ended},
	start: holders{},
	step: func(state any, d Event) (bool, any) {
		return state.(holders).step(d, func(now holders) bool {
			return now.count == 0 || now.mode.Shared && d.Mode.Shared
		})
	},
}

// permitModel requires that no more workers trust their leases than the limit allows.
var permitModel = Model{
	name:  "no more holders than the limit",
	kinds: []string{Acquired, Ended},
	start: holders{},
	step: func(state any, d Event) (bool, any) {
		return state.(holders).step(d, func(now holders) bool {
			return now.count == 0 || now.mode == d.Mode && now.count < d.Mode.Limit
		})
	},
}

// holders are the acquisitions that are trusted at one instant.
type holders struct {
	mode  driver.Mode // of all of them
	count int
	holds string // sorted, each with a line end
}

// step applies an event: an acquisition if mayEnter allows it, or the end of one.
func (h holders) step(d Event, mayEnter func(holders) bool) (legal bool, next any) {
	holds := strings.SplitAfter(h.holds, "\n")
	holds = holds[:len(holds)-1] // the empty text after the last line end
	hold := d.Hold + "\n"
	if d.Kind == Ended {
		i := slices.Index(holds, hold)
		if i < 0 {
			return false, h
		}
		holds = slices.Delete(holds, i, i+1)
		return true, holders{h.mode, len(holds), strings.Join(holds, "")}
	}
	holds = append(holds, hold)
	slices.Sort(holds)
	return mayEnter(h), holders{d.Mode, len(holds), strings.Join(holds, "")}
}

// registerModel requires that the resource accepts a write exactly if no earlier
// write had a larger token.
var registerModel = Model{
	name:  "no stale write",
	kinds: []string{Wrote},
	start: uint64(0),
	step: func(largest any, d Event) (bool, any) {
		fresh := d.Token >= largest.(uint64)
		if fresh {
			return d.OK, d.Token
		}
		return !d.OK, largest
	},
}

// checkLimit bounds the search for the instants of the events.
const checkLimit = time.Minute

// Violations returns the violations of the models, one for each model and name.
func Violations(events []Event) (found []string) {
	names := make(map[string][]Event)
	for _, d := range events {
		names[d.Name] = append(names[d.Name], d)
	}
	for name, events := range names {
		for _, m := range ModelsOf(events, Tokens{}) {
			if v := m.Check(events); v != "" {
				found = append(found, fmt.Sprintf("%s: %q: %s", m.name, name, v))
			}
		}
	}
	slices.Sort(found)
	return found
}

// Name says what the model requires.
func (m Model) Name() string { return m.name }

// Check describes the violation of the model by the events of one name. It returns "" if
// there is none.
func (m Model) Check(events []Event) string {
	ops := m.operations(events)
	switch result, info := porcupine.CheckOperationsVerbose(m.porcupine(), ops, checkLimit); result {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("not decided within %v", checkLimit)
	default:
		return explain(ops, info)
	}
}

// operations returns the events that the model covers.
func (m Model) operations(events []Event) (ops []porcupine.Operation) {
	for i, d := range events {
		if slices.Contains(m.kinds, d.Kind) {
			ops = append(ops, porcupine.Operation{ClientId: d.Worker, Input: d, Call: d.From, Return: d.To, Metadata: i})
		}
	}
	return ops
}

func (m Model) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return m.start },
		Step: func(state, input, _ any) (bool, any) { return m.step(state, input.(Event)) },
		DescribeOperation: func(input, _ any) string {
			d := input.(Event)
			return fmt.Sprintf("%s %v, token %d (%s)", d.Kind, d.Mode, d.Token, d.Hold)
		},
	}
}

// explain describes where the longest legal prefix of a history ends.
func explain(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partial := range slices.Concat(info.PartialLinearizationsOperations()...) {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	done := make(map[any]bool)
	for _, op := range longest {
		done[op.Metadata] = true
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	fmt.Fprintf(&b, "only %[2]d of %[1]d events form a legal sequence", len(ops), len(longest))
	const show = 4
	for _, op := range longest[max(0, len(longest)-show):] {
		fmt.Fprintf(&b, "\n\t%v", op.Input)
	}
	b.WriteString("\n    none of these can follow:")
	shown := 0
	for _, op := range ops {
		if !done[op.Metadata] && shown < show {
			fmt.Fprintf(&b, "\n\t%v", op.Input)
			shown++
		}
	}
	return b.String()
}
