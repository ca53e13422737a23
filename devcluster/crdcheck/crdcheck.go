// Package crdcheck holds CustomResourceDefinitions and custom resources against the API server's own validation, without a server.
package crdcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Main checks every YAML document in the files and folders that it is given and returns the exit status.
// CustomResourceDefinitions are checked first; then each resource of one of their kinds.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: crd-check FILE-OR-FOLDER...")
		return 2
	}
	problems, err := check(args)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(problems) > 0 {
		return 1
	}
	return 0
}

func check(paths []string) ([]string, error) {
	documents, err := read(paths)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	kinds := map[schema.GroupVersionKind]*validator{}
	var problems []string
	for _, document := range documents {
		if document.object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		found, err := define(scheme, document.object, kinds)
		if err != nil {
			found = append(found, err.Error())
		}
		problems = append(problems, prefixed(document.path, found)...)
	}
	for _, document := range documents {
		if validator, ours := kinds[document.object.GroupVersionKind()]; ours {
			problems = append(problems, prefixed(document.path, validator.check(document.object.Object))...)
		}
	}
	return problems, nil
}

// define validates a CustomResourceDefinition and adds a validator for each of its served versions.
func define(scheme *runtime.Scheme, object *unstructured.Unstructured, kinds map[schema.GroupVersionKind]*validator) ([]string, error) {
	external := &v1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, external, true); err != nil {
		return nil, err
	}
	scheme.Default(external)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := scheme.Convert(external, internal, nil); err != nil {
		return nil, err
	}
	// The server fills what has been stored; a file has no status yet.
	for _, version := range internal.Spec.Versions {
		if version.Storage {
			internal.Status.StoredVersions = []string{version.Name}
		}
	}
	var problems []string
	for _, problem := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
		problems = append(problems, problem.Error())
	}
	if len(problems) > 0 {
		return problems, nil
	}
	for _, version := range internal.Spec.Versions {
		definition, err := apiextensions.GetSchemaForVersion(internal, version.Name)
		if err != nil {
			return nil, err
		}
		validator, err := newValidator(definition.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		kinds[schema.GroupVersionKind{Group: internal.Spec.Group, Version: version.Name, Kind: internal.Spec.Names.Kind}] = validator
	}
	return nil, nil
}

type document struct {
	path   string
	object *unstructured.Unstructured
}

func read(paths []string) ([]document, error) {
	var documents []document
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || (!strings.HasSuffix(file, ".yaml") && !strings.HasSuffix(file, ".yml")) {
				return err
			}
			found, err := decode(file)
			documents = append(documents, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return documents, nil
}

func decode(path string) ([]document, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var documents []document
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		// Read as the API server reads it: whole numbers stay integers, which CEL rules depend on.
		raw, object := &runtime.RawExtension{}, &unstructured.Unstructured{}
		err := decoder.Decode(raw)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err == nil && len(raw.Raw) > 0 {
			err = json.Unmarshal(raw.Raw, &object.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(object.Object) > 0 {
			documents = append(documents, document{path, object})
		}
	}
}

func prefixed(path string, problems []string) []string {
	named := make([]string, 0, len(problems))
	for _, problem := range problems {
		named = append(named, path+": "+problem)
	}
	return named
}
