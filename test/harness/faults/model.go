package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A model says what may follow what on one name, as if every deed happened at a
// single moment. A history is right if there are such moments, each within its
// deed.
type model struct {
	name  string
	kinds []string // the deeds that it is about
	step  func(state any, d deed) (legal bool, next any)
	start any
}

// models are what is promised.
var models = []model{fenceModel, mutexModel, registerModel}

// fenceModel: every grant has a larger token than those before it.
var fenceModel = model{
	name:  "tokens rise",
	kinds: []string{acquired},
	start: uint64(0),
	step: func(last any, d deed) (bool, any) {
		return d.Token > last.(uint64), d.Token
	},
}

// mutexModel: one worker at a time believes that it has the lock.
var mutexModel = model{
	name:  "one holder at a time",
	kinds: []string{acquired, ended},
	start: "",
	step: func(holder any, d deed) (bool, any) {
		if d.Kind == acquired {
			return holder == "", d.Hold
		}
		return holder == d.Hold, ""
	},
}

// registerModel: a resource takes what has the largest token so far, or a larger
// one, and nothing else.
var registerModel = model{
	name:  "no stale write",
	kinds: []string{wrote},
	start: uint64(0),
	step: func(largest any, d deed) (bool, any) {
		fresh := d.Token >= largest.(uint64)
		if fresh {
			return d.OK, d.Token
		}
		return !d.OK, largest
	},
}

// checkLimit is for the search for a moment for each deed.
const checkLimit = time.Minute

// violations of the models, one for each model and name.
func violations(deeds []deed) (found []string) {
	names := make(map[string]bool)
	for _, d := range deeds {
		names[d.Name] = true
	}
	for _, m := range models {
		for name := range names {
			if v := m.check(name, deeds); v != "" {
				found = append(found, v)
			}
		}
	}
	slices.Sort(found)
	return found
}

// check returns what is wrong with the deeds on one name, or nothing.
func (m model) check(name string, deeds []deed) string {
	var ops []porcupine.Operation
	for i, d := range deeds {
		if d.Name == name && slices.Contains(m.kinds, d.Kind) {
			ops = append(ops, porcupine.Operation{ClientId: d.Worker, Input: d, Call: d.From, Return: d.To, Metadata: i})
		}
	}
	result, info := porcupine.CheckOperationsVerbose(porcupine.Model{
		Init: func() any { return m.start },
		Step: func(state, input, _ any) (bool, any) { return m.step(state, input.(deed)) },
	}, ops, checkLimit)
	switch result {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("%s: %q: not decided within %v", m.name, name, checkLimit)
	default:
		return fmt.Sprintf("%s: %q: %s", m.name, name, explain(ops, info))
	}
}

// explain shows where the longest explanation of a history ends.
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
	fmt.Fprintf(&b, "of %d deeds only %d follow each other", len(ops), len(longest))
	const show = 4
	for _, op := range longest[max(0, len(longest)-show):] {
		fmt.Fprintf(&b, "\n\t%v", op.Input)
	}
	b.WriteString("\n    and then none of these can come:")
	shown := 0
	for _, op := range ops {
		if !done[op.Metadata] && shown < show {
			fmt.Fprintf(&b, "\n\t%v", op.Input)
			shown++
		}
	}
	return b.String()
}
