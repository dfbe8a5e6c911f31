// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// author is the user of the checked writes. It has no special rights.
const author = "modelberth:preflight-upgrade"

// probe is the annotation of a checked update.
const probe = "modelberth.dev/preflight-upgrade"

// policy is a ValidatingAdmissionPolicy, compiled as in the API server.
type policy struct {
	name    string
	matches admissionregistrationv1.MatchResources
	// namespaces selects namespaces by their labels.
	namespaces labels.Selector
	// isLenient: a failed evaluation does not refuse.
	isLenient   bool
	validations []admissionregistrationv1.Validation
	conditions  admissioncel.ConditionEvaluator
	rules       admissioncel.ConditionEvaluator
	messages    admissioncel.ConditionEvaluator
}

// expression is a CEL expression with its possible types.
type expression struct {
	name, text string
	types      []*cel.Type
}

// GetName implements admissioncel.NamedExpressionAccessor.
func (e *expression) GetName() string { return e.name }

// GetExpression implements admissioncel.ExpressionAccessor.
func (e *expression) GetExpression() string { return e.text }

// ReturnTypes implements admissioncel.ExpressionAccessor.
func (e *expression) ReturnTypes() []*cel.Type { return e.types }

func boolean(text string) *expression {
	return &expression{text: text, types: []*cel.Type{cel.BoolType}}
}

func variable(name, text string) *expression {
	return &expression{name, text, []*cel.Type{cel.AnyType, cel.DynType}}
}

func messageOf(text string) *expression {
	return &expression{text: text, types: []*cel.Type{cel.StringType}}
}

func (p *policy) refusal(message string) refusal { return refusal{p.name, strings.TrimSpace(message)} }

func newPolicy(of *admissionregistrationv1.ValidatingAdmissionPolicy) (*policy, error) {
	switch {
	case of.Spec.ParamKind != nil:
		return nil, errors.New("policies with parameters are not supported")
	case of.Spec.MatchConstraints == nil:
		return nil, errors.New("it has no matchConstraints")
	case of.Spec.MatchConstraints.ObjectSelector != nil, len(of.Spec.MatchConstraints.ExcludeResourceRules) > 0:
		return nil, errors.New("objectSelector and excludeResourceRules are not supported")
	}
	out := &policy{
		name: of.Name, matches: *of.Spec.MatchConstraints, namespaces: labels.Everything(), validations: of.Spec.Validations,
		isLenient: of.Spec.FailurePolicy != nil && *of.Spec.FailurePolicy == admissionregistrationv1.Ignore,
	}
	if selector := of.Spec.MatchConstraints.NamespaceSelector; selector != nil {
		var err error
		if out.namespaces, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, err
		}
	}
	if err := out.compile(&of.Spec); err != nil {
		return nil, err
	}
	return out, nil
}

// compile compiles the expressions as an API server does for a stored policy.
func (p *policy) compile(of *admissionregistrationv1.ValidatingAdmissionPolicySpec) error {
	compiler, err := admissioncel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return err
	}
	declared := admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, each := range of.Variables {
		got := compiler.CompileAndStoreVariable(variable(each.Name, each.Expression), declared, environment.StoredExpressions)
		if got.Error != nil {
			return fmt.Errorf("variable %s: %w", each.Name, got.Error)
		}
	}
	var conditions, rules, messages []admissioncel.ExpressionAccessor
	for _, each := range of.MatchConditions {
		conditions = append(conditions, boolean(each.Expression))
	}
	for _, each := range of.Validations {
		rules = append(rules, boolean(each.Expression))
		messages = append(messages, messageOf(cmp.Or(each.MessageExpression, "''")))
	}
	compile := func(of []admissioncel.ExpressionAccessor) admissioncel.ConditionEvaluator {
		return compiler.CompileCondition(of, declared, environment.StoredExpressions)
	}
	p.conditions, p.rules, p.messages = compile(conditions), compile(rules), compile(messages)
	return errors.Join(slices.Concat(p.conditions.CompilationErrors(), p.rules.CompilationErrors(), p.messages.CompilationErrors())...)
}

// write is one write of an object, as policies get it.
type write struct {
	attributes *admission.VersionedAttributes
	request    *admissionv1.AdmissionRequest
	namespace  *corev1.Namespace
}

// newWrite returns a write. Without an old object, it is a creation.
func newWrite(of *kind, object, old *unstructured.Unstructured) write {
	gvk := object.GroupVersionKind()
	gvr := gvk.GroupVersion().WithResource(of.resource)
	attributes := &admission.VersionedAttributes{VersionedKind: gvk, VersionedObject: object}
	operation, former := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, former, attributes.VersionedOldObject = admission.Update, old, old
	}
	who := &user.DefaultInfo{Name: author, Groups: []string{user.AllAuthenticated}}
	attributes.Attributes = admission.NewAttributesRecord(
		object, former, gvk, object.GetNamespace(), object.GetName(), gvr, "", operation, nil, true, who)
	request := admissioncel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(gvr), metav1.GroupVersionKind(gvk))
	return write{
		attributes: attributes, request: request,
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: object.GetNamespace(), Labels: map[string]string{corev1.LabelMetadataName: object.GetNamespace()},
		}},
	}
}

// refusals returns the policy's messages against a write.
func (p *policy) refusals(ctx context.Context, w write) []refusal {
	gvr := w.attributes.GetResource()
	if !p.isFor(gvr, w.attributes.GetOperation()) || !p.namespaces.Matches(labels.Set(w.namespace.Labels)) {
		return nil
	}
	conditions, err := p.evaluate(ctx, p.conditions, w)
	if err != nil {
		return p.failed(err)
	}
	for i := range conditions {
		if conditions[i].Error != nil {
			return p.failed(conditions[i].Error)
		}
		if conditions[i].EvalResult.Value() == false {
			return nil
		}
	}
	rules, err := p.evaluate(ctx, p.rules, w)
	if err != nil {
		return p.failed(err)
	}
	var out []refusal
	for i := range rules {
		switch {
		case rules[i].Error != nil:
			out = append(out, p.failed(rules[i].Error)...)
		case rules[i].EvalResult.Value() != true:
			out = append(out, p.refusal(p.message(ctx, i, w)))
		}
	}
	return out
}

func (p *policy) evaluate(ctx context.Context, of admissioncel.ConditionEvaluator, w write) ([]admissioncel.EvaluationResult, error) {
	nobody := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionDeny, "", nil
	})
	out, _, err := of.ForInput(ctx, w.attributes, w.request, admissioncel.OptionalVariableBindings{Authorizer: nobody},
		w.namespace, celconfig.RuntimeCELCostBudget)
	return out, err
}

// failed returns the result of a failed evaluation.
func (p *policy) failed(err error) []refusal {
	if p.isLenient {
		return nil
	}
	return []refusal{p.refusal(err.Error())}
}

// message returns the message of a failed validation.
func (p *policy) message(ctx context.Context, i int, w write) string {
	all, err := p.evaluate(ctx, p.messages, w)
	if err == nil && all[i].Error == nil {
		if text, ok := all[i].EvalResult.Value().(string); ok && text != "" {
			return text
		}
	}
	if p.validations[i].Message != "" {
		return p.validations[i].Message
	}
	return "failed expression: " + strings.Join(strings.Fields(p.validations[i].Expression), " ")
}

// isFor reports whether the policy covers an operation on a resource.
func (p *policy) isFor(of schema.GroupVersionResource, operation admission.Operation) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return slices.ContainsFunc(p.matches.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		isOperation := slices.Contains(rule.Operations, admissionregistrationv1.OperationType(operation)) ||
			slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
		return isOperation && has(rule.APIGroups, of.Group) && has(rule.APIVersions, of.Version) && has(rule.Resources, of.Resource) &&
			len(rule.ResourceNames) == 0
	})
}

// update returns the refusals of a write of nothing but an annotation.
func (r *Rules) update(ctx context.Context, of *kind, v *version, stored *unstructured.Unstructured) []refusal {
	updated := stored.DeepCopy()
	annotations := updated.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[probe] = "checked"
	updated.SetAnnotations(annotations)
	out := v.ofUpdate(ctx, updated, stored)
	for _, each := range r.policies {
		out = append(out, each.refusals(ctx, newWrite(of, updated, stored))...)
	}
	return out
}

// create returns the refusals of the same manifest for a new object. It skips policies for objects with an owner,
// because no person creates those.
func (r *Rules) create(ctx context.Context, of *kind, v *version, stored *unstructured.Unstructured) []refusal {
	created := stored.DeepCopy()
	unstructured.RemoveNestedField(created.Object, "status")
	for _, each := range []string{
		"finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "uid", "resourceVersion", "managedFields",
	} {
		unstructured.RemoveNestedField(created.Object, "metadata", each)
	}
	out := v.ofNew(ctx, created)
	if metav1.GetControllerOf(stored) != nil {
		return out
	}
	for _, each := range r.policies {
		out = append(out, each.refusals(ctx, newWrite(of, created, nil))...)
	}
	return out
}
