# SPDX-License-Identifier: Apache-2.0
# merak-completion.bash - merak's words for bash
#
# All words are what `merak --help` and `merak COMMAND --help` list, which is
# what the tables hold that options are parsed by.

# Commands, verbs of a command, options of either, words of an option.
_merak_commands()
{
    "$1" --help 2>/dev/null |
        sed -n '/^commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p'
    printf '%s\n' --help --version
}

_merak_verbs()
{
    "$1" "$2" --help 2>/dev/null |
        sed -nE "s/^(usage:)? *merak $2 ([a-z]+)( .*)?\$/\2/p" | sort -u
}

_merak_options()
{
    "$@" --help 2>/dev/null |
        grep -oE -- '(^|[ ;[])--[a-z][a-z0-9-]*' | tr -d ' ;['
    printf '%s\n' --help
}

_merak_values()
{
    local option=$1

    shift
    "$@" --help 2>/dev/null |
        sed -nE "s/^ *$option \[?([a-z0-9_|-]+\|[a-z0-9_|-]+).*/\1/p" |
        head -n 1 | tr '|' ' '
}

_merak()
{
    local merak=${COMP_WORDS[0]} command=${COMP_WORDS[1]} verb words=
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local asked

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$(_merak_commands "$merak")" -- "$word"))
        return
    fi
    # bash takes the = of --name=value for a word
    if [ "$word" = = ]; then
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    asked=("$merak" "$command")
    verb=${COMP_WORDS[2]}
    if ((COMP_CWORD > 2)) && [[ $verb == [a-z]* ]] &&
        _merak_verbs "$merak" "$command" | grep -qx -e "$verb"; then
        asked+=("$verb")
    fi
    case $word$before in
    --*) words=$(_merak_options "${asked[@]}") ;;
    esac
    case $before in
    --*) [[ $word == --* ]] || words=$(_merak_values "$before" "${asked[@]}") ;;
    *) ((COMP_CWORD > 2)) || words+=" $(_merak_verbs "$merak" "$command")" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _merak merak
