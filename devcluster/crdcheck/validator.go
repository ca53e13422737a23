package crdcheck

import (
	"context"
	"math"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// validator does to one resource what the API server does on create: unknown fields, defaults, schema, CEL rules.
type validator struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func newValidator(props *apiextensions.JSONSchemaProps) (*validator, error) {
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	schema, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &validator{structural, schema, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

func (v *validator) check(object map[string]any) []string {
	var problems []string
	object = runtime.DeepCopyJSON(object)
	unknown := pruning.PruneWithOptions(object, v.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		problems = append(problems, "unknown field "+path)
	}
	defaulting.Default(object, v.structural)
	for _, problem := range validation.ValidateCustomResource(nil, object, v.schema) {
		problems = append(problems, problem.Error())
	}
	broken, _ := v.rules.Validate(context.Background(), nil, v.structural, object, nil, math.MaxInt64)
	for _, problem := range broken {
		problems = append(problems, problem.Error())
	}
	return problems
}
