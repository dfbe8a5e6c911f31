// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"

	"golang.org/x/tools/go/packages"
)

// Gate is a measured property of a package.
type Gate string

// The gates. Each is a ceiling, not a goal.
const (
	// Methods is the number of methods of the type with the most.
	Methods Gate = "methods"
	// Fields is the number of fields of the largest struct shared by functions in several files.
	Fields Gate = "fields"
	// Chain is the longest static chain of calls from Reconcile within the package, in functions.
	Chain Gate = "chain"
	// Cycle is the size of the largest cycle of files.
	Cycle Gate = "cycle"
	// Lines is the length of the longest function.
	Lines Gate = "lines"
)

// filesThatShare is the number of files from which on a struct counts as shared. Fewer files are usually one concept.
const filesThatShare = 4

// Measurement is the value of a gate in a package, and its place.
type Measurement struct {
	Gate  Gate
	Value int
	// Subject is the type, function or file with the value.
	Subject string
}

// Measure returns the value of each gate in a package. Tests do not count.
func Measure(pkg *packages.Package) []Measurement {
	m := &measure{pkg: pkg, files: map[*types.Func]string{}, bodies: map[*types.Func]*ast.FuncDecl{}}
	m.declare()
	return []Measurement{m.methods(), m.fields(), m.chain(), m.cycle(), m.lines()}
}

// measure is the state of a package's measurement.
type measure struct {
	pkg *packages.Package
	// files maps functions and methods to their files.
	files map[*types.Func]string
	// bodies maps functions and methods to their declarations.
	bodies map[*types.Func]*ast.FuncDecl
}

// declare records each function's file. Generated files do not count.
func (m *measure) declare() {
	for _, file := range m.pkg.Syntax {
		if ast.IsGenerated(file) {
			continue
		}
		name := filepath.Base(m.pkg.Fset.Position(file.Package).Filename)
		for _, declaration := range file.Decls {
			if d, ok := declaration.(*ast.FuncDecl); ok {
				if f, ok := m.pkg.TypesInfo.Defs[d.Name].(*types.Func); ok {
					m.files[f], m.bodies[f] = name, d
				}
			}
		}
	}
}

func (m *measure) methods() Measurement {
	count := map[string]int{}
	for f := range m.bodies {
		if name := receiver(f); name != "" {
			count[name]++
		}
	}
	return most(Methods, count)
}

// receiver returns the name of a method's type; empty for a function.
func receiver(f *types.Func) string {
	recv := f.Signature().Recv()
	if recv == nil {
		return ""
	}
	if named := namedOf(recv.Type()); named != nil {
		return named.Obj().Name()
	}
	return ""
}

// namedOf returns a type or its pointer's base as a named type; nil if there is none.
func namedOf(t types.Type) *types.Named {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, _ := t.(*types.Named)
	return named
}

// fields measures the package's structs that functions in several files take by reference, as a receiver or a
// parameter.
func (m *measure) fields() Measurement {
	users := map[*types.Named]map[string]bool{}
	for f := range m.bodies {
		signature := f.Signature()
		takes := slices.Collect(signature.Params().Variables())
		if signature.Recv() != nil {
			takes = append(takes, signature.Recv())
		}
		for _, parameter := range takes {
			if _, isPointer := parameter.Type().(*types.Pointer); !isPointer {
				continue
			}
			if named := namedOf(parameter.Type()); named != nil && named.Obj().Pkg() == m.pkg.Types {
				if users[named] == nil {
					users[named] = map[string]bool{}
				}
				users[named][m.files[f]] = true
			}
		}
	}
	count := map[string]int{}
	for named, files := range users {
		if shared, ok := named.Underlying().(*types.Struct); ok && len(files) >= filesThatShare {
			count[named.Obj().Name()] = shared.NumFields()
		}
	}
	return most(Fields, count)
}

// chain measures the calls below Reconcile; 0 if no function has this name.
func (m *measure) chain() Measurement {
	calls := map[string][]string{}
	for f, declaration := range m.bodies {
		calls[title(f)] = nil
		for _, called := range m.called(declaration) {
			calls[title(f)] = append(calls[title(f)], title(called))
		}
	}
	depths := depths(calls)
	count := map[string]int{}
	for f := range m.bodies {
		if f.Name() == "Reconcile" {
			count[title(f)] = depths[title(f)]
		}
	}
	return most(Chain, count)
}

// called returns the package's functions and methods that a function calls or passes on. It does not follow interfaces.
func (m *measure) called(declaration *ast.FuncDecl) []*types.Func {
	var out []*types.Func
	ast.Inspect(declaration, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok {
			if f, ok := m.pkg.TypesInfo.Uses[name].(*types.Func); ok && m.bodies[f.Origin()] != nil {
				out = append(out, f.Origin())
			}
		}
		return true
	})
	return out
}

// title returns a function's name, with its receiver's.
func title(f *types.Func) string {
	if of := receiver(f); of != "" {
		return of + "." + f.Name()
	}
	return f.Name()
}

// cycle measures the calls between files. A type with users in several files makes no cycle, because a reader of the
// type needs only its file.
func (m *measure) cycle() Measurement {
	uses := map[string][]string{}
	for f, declaration := range m.bodies {
		from := m.files[f]
		for _, called := range m.called(declaration) {
			if to := m.files[called]; to != from {
				uses[from] = append(uses[from], to)
			}
		}
	}
	out := Measurement{Gate: Cycle}
	for _, files := range components(uses) {
		if len(files) > out.Value {
			out.Value, out.Subject = len(files), slices.Min(files)
		}
	}
	return out
}

func (m *measure) lines() Measurement {
	count := map[string]int{}
	for f, declaration := range m.bodies {
		if declaration.Body != nil {
			begin, end := m.pkg.Fset.Position(declaration.Pos()), m.pkg.Fset.Position(declaration.End())
			count[title(f)] = end.Line - begin.Line + 1
		}
	}
	return most(Lines, count)
}

// most returns the largest of several counts; of equal counts, the first by name.
func most(gate Gate, count map[string]int) Measurement {
	out := Measurement{Gate: gate}
	for subject, value := range count {
		if c := cmp.Compare(value, out.Value); c > 0 || c == 0 && subject < out.Subject {
			out.Value, out.Subject = value, subject
		}
	}
	return out
}
